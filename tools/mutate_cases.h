#pragma once
// Tells the switch of tools/mutate which case runs, also in processes that it starts: at the end of the main() of tests in its build.
#include <gtest/gtest.h>
#include <cstdlib>
#include <string>
#include "mutate.h"

struct CoshardMutateCases : testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    name(std::string(test.test_suite_name()) + "." + test.name());
  }
  void OnTestEnd(const testing::TestInfo&) override { name(""); }
  static void name(const std::string& text) {
    ::setenv("COSHARD_MUTANT_CASE", text.c_str(), 1);
    for (bool& seen : coshard_mutants_seen) seen = false;
  }
};
[[maybe_unused]] const bool coshard_mutate_cases = [] {
  if (std::getenv("COSHARD_MUTANTS_REACHED"))
    testing::UnitTest::GetInstance()->listeners().Append(new CoshardMutateCases);
  return true;
}();
