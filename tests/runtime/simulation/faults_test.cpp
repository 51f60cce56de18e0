// Faults that this library has had, brought back one at a time: the random programs find each.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "runtime/coro/fault_switch.h"
#include "tests/runtime/simulation/verdict.h"

namespace coshard::testing {
namespace {

#ifndef NDEBUG

constexpr std::uint64_t kMost = 2000;

std::string judge_one_difference(std::uint64_t seed) { return judge_difference(seed); }

class WithFault {
 public:
  explicit WithFault(Fault which) { fault.store(which); }
  ~WithFault() { fault.store(Fault::None); }
};

// After how many seeds `judge` finds it, and how.
void expect_found(Fault which, std::string (*judge)(std::uint64_t)) {
  const WithFault brought_back(which);
  for (std::uint64_t seed = 0; seed < kMost; ++seed) {
    const std::string verdict = judge(seed);
    if (verdict.empty()) continue;
    std::printf("found after %d seeds: %s\n", static_cast<int>(seed + 1),
                verdict.substr(0, 200).c_str());
    ::testing::Test::RecordProperty("seeds", static_cast<int>(seed + 1));
    return;
  }
  ADD_FAILURE() << "not found within " << kMost << " seeds";
}

TEST(Faults, ANullWorkThatDoesNotSuspend) {
  expect_found(Fault::NullWorkDoesNotSuspend, judge_one_structure);
}
TEST(Faults, ABranchThatIsNotCompared) {
  expect_found(Fault::BranchIsNotCompared, judge_one_difference);
}
TEST(Faults, WaitsThatResumeByCompletion) {
  expect_found(Fault::WaitingByCompletion, judge_one_structure);
}
TEST(Faults, WhatWasGivenUpThatIsNotCompared) {
  expect_found(Fault::GivenUpIsNotCompared, judge_one_difference);
}
TEST(Faults, ASleeperThatIsNotWokenAfterAnOp) {
  expect_found(Fault::NoWakeUpAfterAnOp, judge_one_structure);
}
TEST(Faults, SiblingsThatAreNotCancelled) {
  expect_found(Fault::SiblingsAreNotCancelled, judge_one_structure);
}

#else

TEST(Faults, AreNotInAReleaseBuild) { GTEST_SKIP() << "they are not compiled in"; }

#endif

}  // namespace
}  // namespace coshard::testing
