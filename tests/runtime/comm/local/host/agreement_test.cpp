// What ranks compare of one collective, beyond its geometry.
#include <atomic>
#include <functional>
#include <thread>

#include "runtime/coro/user_call.h"
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

using Change = std::function<void(Collective&)>;

// How those of two ranks end that are here; the second changes its call.
std::vector<Outcome> ends_of(const Change& both, const Change& second) {
  return outcomes_here(2, [&](Communicator& comm, int rank) {
    Floats data(12UL, 1.0F);
    Collective c = sum_of(data, {"x.cpp", 7});
    both(c);
    if (rank == 1) second(c);
    comm.issue(c).wait();
  });
}

void expect_told(const Change& both, const Change& second, const std::vector<std::string>& named) {
  for (const Outcome& end : ends_of(both, second)) {
    EXPECT_TRUE(end.failed);
    EXPECT_EQ(end.kind, ErrorKind::CommFailed);
    for (const std::string& each : named)
      EXPECT_NE(end.text.find(each), std::string::npos) << end.text << "; wanted: " << each;
  }
}

TEST(Agreement, ShapesOfAsManyElementsDiffer) {
  const auto shaped = [](std::vector<std::int64_t> shape) {
    return [shape](Collective& c) { c.shape = counts_of(shape); };
  };
  expect_told(shaped({3, 4}), shaped({4, 3}), {"[3,4]", "[4,3]", "x.cpp:7"});
  expect_told(shaped({12}), shaped({12, 1}), {"[12]", "[12,1]"});
  expect_told(shaped({12}), [](Collective& c) { c.shape = nullptr; }, {"disagree"});
  for (const Outcome& end : ends_of(shaped({3, 4}), [](Collective&) {}))
    EXPECT_FALSE(end.failed) << end.text;
}

// Within the modules of two ranks.
std::vector<Outcome> ends_in(std::string_view first, std::string_view second) {
  return outcomes_here(2, [&](Communicator& comm, int rank) {
    const WithinModule within(rank == 0 ? first : second);
    Floats data(12UL, 1.0F);
    comm.issue(sum_of(data, {"x.cpp", 7})).wait();
  });
}

TEST(Agreement, ModulesDiffer) {
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{
           {"layers.1", "layers.2"}, {"layers.1", "layers.10"}, {"up", "down"}})
    for (const Outcome& end : ends_in(a, b)) {
      EXPECT_EQ(end.kind, ErrorKind::CommFailed);
      EXPECT_NE(end.text.find(a), std::string::npos) << end.text;
      EXPECT_NE(end.text.find(b), std::string::npos) << end.text;
    }
}

// A rank without observers does not enter each module.
TEST(Agreement, AModuleMayBeWithinThatOfAnotherRank) {
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{
           {"", "layers.1"}, {"layers", "layers.1.up"}, {"layers.1.up", "layers.1"}})
    for (const Outcome& end : ends_in(a, b)) EXPECT_FALSE(end.failed) << end.text;
}

TEST(Agreement, TheOrderOfABucketDiffers) {
  const auto ordered = [](std::vector<std::int64_t> order) {
    return [order](Collective& c) { c.order = counts_of(order); };
  };
  expect_told(ordered({3, 5, 7}), ordered({3, 7, 5}), {"another order", "x.cpp:7"});
  for (const auto& second : {ordered({3, 5, 8}), ordered({4, 6, 8})})
    for (const Outcome& end : ends_of(ordered({3, 5, 7}), second))
      EXPECT_FALSE(end.failed) << end.text;
}

TEST(Agreement, NamesDiffer) {
  expect_told([](Collective& c) { c.names = "a, b"; }, [](Collective& c) { c.names = "b, a"; },
              {"of a, b", "of b, a"});
}

// Rank 1 gives up #0 before it issues #1, and #2 afterwards; then rank 0 issues #1.
TEST(WhatWasGivenUp, IsToldFromTheFirstThatDiffers) {
  std::atomic<bool> ahead = false;
  const auto ends = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
    std::vector<Floats> data;
    for (int i = 0; i < 3; ++i) data.emplace_back(12UL, 1.0F);
    const auto issue = [&](int i) { return comm.issue(sum_of(data[i], {"x.cpp", 10 + i})); };
    while (rank == 0 && !ahead) std::this_thread::yield();
    const Work first = issue(0);
    if (rank == 1) first.state()->note(WorkEvent::Abandoned);
    const Work second = issue(1);
    const Work third = issue(2);
    if (rank == 1) third.state()->note(WorkEvent::Abandoned);
    ahead = true;
    second.wait();
  });
  for (const Outcome& end : ends) {
    EXPECT_EQ(end.kind, ErrorKind::CommFailed);
    EXPECT_NE(end.text.find("rank 1 gave up waiting for all_reduce #0"), std::string::npos)
        << end.text;
    EXPECT_EQ(end.text.find("#2"), std::string::npos) << end.text;
    EXPECT_EQ(end.text.find("rank 0 gave up"), std::string::npos) << end.text;
  }
}

}  // namespace
}  // namespace coshard::testing
