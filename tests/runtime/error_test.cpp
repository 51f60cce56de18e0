// The error type: its kind, its text, and where it came from.
#include <gtest/gtest.h>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>

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

TEST(ErrorType, OtherExceptionsAreToldByTheirTextAndNumbersByNone) {
  const std::exception_ptr known = std::make_exception_ptr(std::runtime_error("boom"));
  note_left(known, 0, "layer");
  EXPECT_EQ(text_of(known), "boom");
  EXPECT_EQ(message_of(known), "boom");
  EXPECT_NE(text_of(std::make_exception_ptr(42)), "");
}

TEST(ErrorType, RemembersTheLineThatTheLibraryWorkedFor) {
  Branch::current().place.site = CallSite::current();
  const int line = __LINE__ - 1;
  const Error error(ErrorKind::BadInput, "here");
  Branch::current().place.site = {};
  EXPECT_EQ(error.site().line, line);
}

}  // namespace
}  // namespace coshard
