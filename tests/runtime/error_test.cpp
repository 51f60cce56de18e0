// The error type: its kind, its text, and where it came from; and text of others as it is printed.
#include <gtest/gtest.h>

#include <boost/system/system_error.hpp>
#include <cerrno>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>
#include "runtime/printable.h"
#include "tests/support/grouped_numbers.h"

namespace coshard {
namespace {

TEST(ErrorType, JoinsItsOperandsAndKeepsItsKind) {
  try {
    CS_REQUIRE(1 + 1 == 3, "sum ", 2, " of ", "two");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_STREQ(error.what(), "sum 2 of two");
    EXPECT_FALSE(error.site().known());
  }
  EXPECT_NO_THROW(CS_REQUIRE(true, "never"));
  EXPECT_EQ(to_string(ErrorKind::Timeout), "timeout");
}

TEST(ErrorType, TellsTheFirstModuleThatItLeftAndKeepsItsMessage) {
  const std::exception_ptr error = std::make_exception_ptr(Error(ErrorKind::Timeout, "late"));
  note_left(error, 3, "layers.0");
  note_left(error, 3, "");
  EXPECT_EQ(text_of(error), "rank 3, layers.0: late");
  EXPECT_EQ(message_of(error), "late");
  Error other(ErrorKind::BadInput, "bad");
  other.left(1, "");
  EXPECT_STREQ(other.what(), "rank 1: bad");
}

TEST(ErrorType, KeepsTheRankThatItsMessageNames) {
  for (const char* text : {"rank 12: disk full", "rank 0 failed", "rank : no"}) {
    Error error(ErrorKind::BadInput, text);
    error.left(1, "");
    const bool named = std::string_view(text) == "rank 12: disk full";
    EXPECT_EQ(std::string(error.what()), named ? text : str_cat("rank 1: ", text));
  }
}

TEST(ErrorType, OtherExceptionsAreToldByTheirTextAndNumbersByNone) {
  const std::exception_ptr known = std::make_exception_ptr(std::runtime_error("boom"));
  note_left(known, 0, "layer");
  EXPECT_EQ(text_of(known), "boom");
  EXPECT_EQ(message_of(known), "boom");
  EXPECT_NE(text_of(std::make_exception_ptr(42)), "");
}

struct Mine {
  int value;
};

TEST(ErrorType, WhatHasNoTextIsToldByItsType) {
  EXPECT_NE(text_of(std::make_exception_ptr(Mine{7})).find("Mine"), std::string::npos);
  EXPECT_NE(text_of(std::make_exception_ptr(42)).find("int"), std::string::npos);
  EXPECT_NE(message_of(std::make_exception_ptr(std::domain_error(""))).find("domain_error"),
            std::string::npos);
  EXPECT_EQ(text_of(std::make_exception_ptr("a literal")), "a literal");
  EXPECT_EQ(text_of(std::make_exception_ptr(std::string("a string"))), "a string");
}

TEST(ErrorType, BoostsErrorsAreToldWithoutAPlaceInItsSources) {
  const boost::system::error_code code(EADDRINUSE, boost::system::system_category());
  EXPECT_EQ(text_of(std::make_exception_ptr(boost::system::system_error(code, "bind"))),
            "bind: Address already in use");
  EXPECT_EQ(text_of(std::make_exception_ptr(boost::system::system_error(code))),
            "Address already in use");
}

TEST(ErrorType, ShowsNumbersAlikeInEveryLocale) {
  const testing::GroupedNumbers grouped;
  EXPECT_EQ(str_cat(65536, ' ', 0.25, ' ', 1e6 + 0.5), "65536 0.25 1e+06");
}

TEST(ErrorType, RemembersTheLineThatTheLibraryWorkedFor) {
  Branch::current().place.site = CallSite::current();
  const int line = __LINE__ - 1;
  const Error error(ErrorKind::BadInput, "here");
  Branch::current().place.site = {};
  EXPECT_EQ(error.site().line, line);
}

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "rank 1: bad input", "a\tb", "größer ∂x", "\xc2\xa0", "\xc2"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EndsOfLinesBecomeSpaces) { EXPECT_EQ(printable("one\ntwo\n"), "one two "); }

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("50 %\r\x1b[2Kgone"), "50 %\\x0d\\x1b[2Kgone");
  EXPECT_EQ(printable(std::string_view("\0\x07\x7f", 3)), "\\x00\\x07\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m");  // CSI as one character
}

}  // namespace
}  // namespace coshard
