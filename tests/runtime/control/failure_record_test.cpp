#include "runtime/control/failure_record.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <stdexcept>

#include <coshard/runtime/error.h>
#include "runtime/comm/peer_failure.h"

namespace coshard {
namespace {

TEST(FailureRecord, PassesThroughBytesUnchanged) {
  const FailureRecord all{"timeout", 3, "no answer: a\nb", "layers.1", "a.cpp:3", {0, 12}, true};
  for (const FailureRecord& record : {all, FailureRecord{}, FailureRecord{.text = "x"}})
    EXPECT_EQ(record_of(std::string_view(to_bytes(record))), record);
}

TEST(FailureRecord, CutsLongTextsAndZeroBytes) {
  FailureRecord record;
  record.text = std::string(100'000, 'x');
  record.module = std::string(5000, 'm');
  for (int r = 0; r < 10'000; ++r) record.missing.push_back(r);
  const std::string bytes = to_bytes(record);
  EXPECT_LE(bytes.size(), 8192U);
  const auto back = record_of(std::string_view(bytes));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->text, std::string(4000, 'x'));
  EXPECT_GT(back->missing.size(), 100U);
  record = {.text = std::string("a\0b", 3)};
  EXPECT_EQ(record_of(std::string_view(to_bytes(record)))->text, "a b");
}

TEST(FailureRecord, OtherBytesAreNone) {
  const std::string good = to_bytes({"timeout", 3, "text", "m", "p", {1}, false});
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(record_of(std::string_view(good).substr(0, size)));
  EXPECT_FALSE(record_of(std::string_view(good + "x")));
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    for (int changes = 0; changes < 3; ++changes)
      bytes[random() % bytes.size()] = static_cast<char>(random() % 256);
    if (const auto record = record_of(std::string_view(bytes))) {
      EXPECT_EQ(record_of(std::string_view(to_bytes(*record))), record);
    }
  }
}

TEST(FailureRecord, HoldsWhatAnErrorKnows) {
  Error late(ErrorKind::Timeout, "late");
  late.note_missing({1, 2});
  const Failure failure{4, "late", "mlp", {}, false};
  const FailureRecord record = record_of(failure, std::make_exception_ptr(late));
  EXPECT_EQ(record, (FailureRecord{"timeout", 4, "late", "mlp", "", {1, 2}, false}));
  EXPECT_EQ(record.line(), "rank 4, mlp: late");
  EXPECT_TRUE(record_of(failure, std::make_exception_ptr(PeerFailure("x"))).of_peer);
  const FailureRecord other = record_of(failure, std::make_exception_ptr(std::logic_error("x")));
  EXPECT_EQ(other.kind, "exception");
  EXPECT_FALSE(other.of_peer);
}

TEST(FailureRecord, GoesNowhereWithoutAGuard) {
  ::unsetenv(kFailureVariable);
  report_failure({.text = "x"});
  report_out_of_memory();
  report_recovery();
  ::setenv(kFailureVariable, "coshard-nobody-listens", 1);
  report_failure({.text = "x"});
  ::setenv(kFailureVariable, std::string(200, 'x').c_str(), 1);  // longer than a name may be
  report_failure({.text = "x"});
  ::unsetenv(kFailureVariable);
}

}  // namespace
}  // namespace coshard
