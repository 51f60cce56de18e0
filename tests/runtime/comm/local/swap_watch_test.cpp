// Two equal collectives that one rank swaps: told by their lines, operators, or origins.
#include "runtime/comm/local/swap_watch.h"

#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

constexpr CallSite kA{"a.cpp", 1}, kB{"a.cpp", 2}, kC{"a.cpp", 3}, kOther{"b.cpp", 1};
constexpr CallSite kAlsoA{"elsewhere/a.cpp", 1};

struct Called {
  CallSite where;
  std::uint64_t origin = 0;
  std::size_t size = 4;
};
using Calls = std::vector<Called>;

// How those of two ranks end that are here: they issue equal sums, rank 1 those of `second`.
std::vector<Outcome> ends_of(const Calls& first, const Calls& second) {
  return outcomes_here(2, [&](Communicator& comm, int rank) {
    for (const Called& call : rank == 0 ? first : second) {
      Floats data(call.size, 1.0F);
      Collective c = sum_of(data, call.where);
      c.origin = call.origin;
      comm.issue(c).wait();
    }
  });
}

void expect_told(const Calls& first, const Calls& second) {
  for (const Outcome& end : ends_of(first, second)) {
    EXPECT_TRUE(end.failed);
    EXPECT_EQ(end.kind, ErrorKind::CommFailed);
    EXPECT_NE(end.text.find("swapped"), std::string::npos) << end.text;
  }
}

void expect_legal(const Calls& first, const Calls& second) {
  for (const Outcome& end : ends_of(first, second)) EXPECT_FALSE(end.failed) << end.text;
}

TEST(SwapWatch, TellsWhenTwoLinesAreSwapped) {
  expect_told({{kA}, {kB}}, {{kB}, {kA}});
  expect_told({{kA}, {kB}, {kC}}, {{kC}, {kB}, {kA}});
  expect_told({{kA}, {kC}, {kB}}, {{kB}, {kC}, {kA}});
}

TEST(SwapWatch, TellsWhenCallsAreRotated) { expect_told({{kA}, {kB}, {kC}}, {{kB}, {kC}, {kA}}); }

TEST(SwapWatch, NamesBothLines) {
  for (const Outcome& end : ends_of({{kA}, {kB}}, {{kB}, {kA}})) {
    EXPECT_NE(end.text.find("a.cpp:1"), std::string::npos) << end.text;
    EXPECT_NE(end.text.find("a.cpp:2"), std::string::npos) << end.text;
  }
}

TEST(SwapWatch, OneCallMayStandOnTwoLines) {
  Calls first, second;
  for (int i = 0; i < 100; ++i) {
    first.push_back({kA});
    second.push_back({i % 2 == 0 ? kB : kOther});
    first.push_back({kC});
    second.push_back({kC});
  }
  expect_legal(first, second);
}

TEST(SwapWatch, ComparesTheNameOfTheFileWithoutItsFolders) {
  expect_legal({{kA}, {kB}}, {{kAlsoA}, {kB}});
  expect_told({{kAlsoA}, {kB}}, {{kB}, {kA}});
}

TEST(SwapWatch, UnequalCollectivesAreNotSwapped) {
  expect_legal({{kA, 0, 4}, {kB, 0, 5}}, {{kB, 0, 4}, {kA, 0, 5}});
}

TEST(SwapWatch, ALineMayComeAgainMuchLater) {
  Calls first{{kA}}, second{{kB}};
  for (int i = 0; i < 63; ++i) {
    first.push_back({kC});
    second.push_back({kC});
  }
  Calls sooner = first, sooner_second = second;
  sooner.back() = {kB};
  sooner_second.back() = {kA};
  expect_told(sooner, sooner_second);
  first.push_back({kB});
  second.push_back({kA});
  expect_legal(first, second);
}

TEST(SwapWatch, TellsWhenTheDataAreSwappedOnOneLine) {
  expect_told({{kA, 1}, {kA, 2}}, {{kA, 2}, {kA, 1}});
  expect_told({{kA, 1}, {kA, 2}, {kB, 3}}, {{kB, 3}, {kC, 2}, {kC, 1}});
}

TEST(SwapWatch, WhatIsKnownToBeTheSameIsNotSwapped) {
  expect_legal({{kA, 1}, {kB, 1}}, {{kB, 1}, {kA, 1}});
  expect_told({{kA, 1}, {kB, 0}}, {{kB, 0}, {kA, 1}});
}

TEST(SwapWatch, ARankMayHaveMadeMoreThanItsPeers) {
  Calls first, second;
  for (int round = 0; round < 4; ++round)
    for (std::uint64_t tensor = 5; tensor < 10; ++tensor) {
      first.push_back({kA, tensor});
      second.push_back({kA, tensor + 1});
    }
  expect_legal(first, second);
  expect_legal({{kA, 1}, {kA, 0}, {kA, 2}}, {{kA, 1}, {kA, 7}, {kA, 0}});
}

}  // namespace
}  // namespace coshard::testing
