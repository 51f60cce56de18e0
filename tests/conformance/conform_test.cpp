// The conformance cases, and that their judge can say no.
#include "tools/conform/conform.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <sstream>

#include "tests/support/device.h"
#include "tests/support/spread.h"

namespace coshard::conform {
namespace {

std::vector<std::string> files() { return case_files(COSHARD_CONFORMANCE_CASES); }

bool same(const RankResult& a, const RankResult& b) {
  const auto bits = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  return a.steps == b.steps &&
         std::ranges::equal(a.tensors, b.tensors, [&](const auto& x, const auto& y) {
           const Snapshot &one = x.second, &other = y.second;
           return x.first == y.first && one.text == other.text && one.layout == other.layout &&
                  one.local_shape == other.local_shape &&
                  std::ranges::equal(one.values, other.values, bits);
         });
}

// A process of a job sees what its own ranks have left: that has to be what threads leave, which
// are judged.
std::string run_case_over_mpi(const Case& c, const WorldOptions& options) {
  std::vector<RankResult> left;
  const std::string failure = [&] {
    const coshard::testing::InThreads threads;
    return run_case(c, options, [&](const Case& judged, const std::vector<RankResult>& ranks) {
      left = ranks;
      return failure_of(judged, ranks);
    });
  }();
  if (!failure.empty()) return failure;
  return run_case(c, options, [&](const Case&, const std::vector<RankResult>& ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r)
      if (!ranks[r].steps.empty() && !same(ranks[r], left[r]))
        return str_cat("rank ", r, " leaves something else than as a thread");
    return std::string();
  });
}

class ConformanceCases : public ::testing::TestWithParam<std::string> {};

TEST_P(ConformanceCases, AllHold) {
  const WorldOptions options = coshard::testing::test_options(1);
  const auto run = [&](const Case& c) {
    return coshard::testing::over_mpi() ? run_case_over_mpi(c, options) : run_case(c, options);
  };
  for (const Case& c : read_cases(GetParam())) EXPECT_EQ(run(c), "") << c.name;
}

INSTANTIATE_TEST_SUITE_P(Files, ConformanceCases, ::testing::ValuesIn(files()),
                         [](const auto& info) {
                           const std::size_t from = info.param.rfind('/') + 1;
                           return info.param.substr(from, info.param.rfind('.') - from);
                         });

Case case_named(const std::string& file, const std::string& part) {
  for (const Case& c : read_cases(std::string(COSHARD_CONFORMANCE_CASES) + "/" + file + ".json"))
    if (c.name.find(part) != std::string::npos) return c;
  ADD_FAILURE() << "no case " << part << " in " << file;
  return {};
}

// S(0) -> R of [5] on 2 ranks: an all_gather, layout R, the same values on both.
Case gathered() { return case_named("redistribute_1d", "S0-to-R/"); }

Json& check_with(Case& c, const char* field) {
  for (Json& check : c.spec["expect"])
    if (check.contains(field)) return check;
  ADD_FAILURE() << c.name << " has no check of " << field;
  return c.spec["expect"][0];
}

void expect_failure(const Case& c, const std::string& text) {
  const std::string failure = run_case(c);
  EXPECT_NE(failure.find(text), std::string::npos) << c.name << ": '" << failure << "'";
}

TEST(Conform, TheUnspoiledCaseHolds) { EXPECT_EQ(run_case(gathered()), ""); }

TEST(Conform, AnotherLayoutFails) {
  Case c = gathered();
  check_with(c, "placements")["placements"] = {"S(0)"};
  expect_failure(c, "layout R, want S(0)");
}

TEST(Conform, ATensorOfOtherValuesOrShapeFails) {
  Case c = gathered();
  Json& keys = check_with(c, "local")["local"];
  keys[1] = c.spec["steps"][0]["tensor"];  // the whole of the input: equal to what was gathered
  EXPECT_EQ(run_case(c), "");
  keys[1] = case_named("redistribute_1d", "S0-to-S0/").spec["expect"][2]["local"][0];
  expect_failure(c, "want [");
}

TEST(Conform, ASpoiledElementFails) {
  Case c = case_named("pointwise", "neg/Psum");
  ASSERT_EQ(run_case(c), "");
  check_with(c, "full")["full"] = c.spec["steps"][0]["tensors"][0];
  expect_failure(c, "element [");
}

TEST(Conform, OneCollectiveTooManyFails) {
  Case c = gathered();
  check_with(c, "collectives")["collectives"] = Json::object();
  expect_failure(c, "issued {all_gather 1}");
}

TEST(Conform, AnotherKindOfCollectiveFails) {
  Case c = gathered();
  check_with(c, "collectives")["collectives"] = {{"all_reduce", 1}};
  expect_failure(c, "issued {all_gather 1}");
}

TEST(Conform, ASpoiledGradientFails) {
  Case c = case_named("redistribute_grad", "");
  ASSERT_EQ(run_case(c), "");
  for (Json& step : c.spec["steps"])
    if (step["do"] == "backward")
      step["do"] = "to_local", step["in"] = step["of"], step["out"] = "z";
  expect_failure(c, "is missing");
}

TEST(Conform, ACaseThatMustBeRefusedAndIsNotFails) {
  Case c = case_named("errors", "redistribute-4x4-to-S2");
  ASSERT_EQ(run_case(c), "");
  c.spec["steps"][2]["placements"] = {"S(1)"};
  expect_failure(c, "was accepted; the case expects an error");
}

TEST(Conform, ACaseThatFailsBeforeTheStepThatMustFails) {
  Case c = case_named("errors", "redistribute-4x4-to-S2");
  c.spec["steps"][1]["placements"] = {"S(5)"};
  expect_failure(c, "distribute_tensor");
}

TEST(Conform, WhatCannotBeRunHasFailed) {
  Case c = case_named("pointwise", "neg/Psum");
  c.spec["steps"][2]["op"] = "no_such_operator";
  expect_failure(c, "no_such_operator");
  c = gathered();
  c.spec["steps"][0]["do"] = "no_such_step";
  expect_failure(c, "no_such_step");
  c = gathered();
  check_with(c, "placements") = {{"value", "y"}, {"no_such_check", 1}};
  expect_failure(c, "unknown check");
}

TEST(Conform, AnIntegerWhereAFloatIsWantedFails) {
  Case c = gathered();
  c.spec["steps"][0]["dtype"] = "i64";
  expect_failure(c, "dtype i64");
}

TEST(Conform, ADirectoryIsCountedCaseByCase) {
  std::ostringstream out;
  const Tally tally = run_directory(COSHARD_CONFORMANCE_CASES, "redistribute_1d/S0-to-R/", out);
  EXPECT_GT(tally.passed, 3);
  EXPECT_EQ(tally.failed, 0);
  EXPECT_EQ(out.str(), str_cat(tally.passed, " passed, 0 failed\n"));
  EXPECT_THROW(run_directory("/nowhere", "", out), Error);
}

}  // namespace
}  // namespace coshard::conform
