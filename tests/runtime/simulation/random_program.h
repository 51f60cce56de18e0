#pragma once
// A random program of one structure for all ranks, as data: nested when_alls, collectives on
// several communicators that are issued and awaited later in other orders, messages, yields,
// sleeps, siblings that throw, deadlines. Where time decides when a branch goes on, nothing is
// issued after.
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <coshard/runtime/observer.h>
#include <coshard/runtime/reduce.h>
#include "tests/support/seeds.h"

namespace coshard::testing {

enum class Step {
  Issue,        // of a collective or a message; what it gives has the number of the step
  Await,        // what `of` gave
  AwaitAny,     // the same, as it comes
  WaitInPlace,  // the same, without suspending
  Yield,
  Sleep,    // nap[rank]
  Load,     // the same, in_order
  Throw,    // PlannedError, on all ranks
  All,      // when_all of the branches
  TryAll,   // the same, one of which throws; PlannedError is caught
  Overdue,  // the branches have a deadline that passes; Error{Timeout} is caught
  InTime,   // the same with one that does not pass
};

struct Node {
  Step step{};
  int number = 0;
  int of = 0;
  // Of an Issue:
  int group = 0;
  CollectiveKind kind{};  // Send: a message from group rank `root` to `to`
  Reduce reduce{};
  int root = 0, to = 0;
  std::vector<std::int64_t> counts;  // by group rank; one for all where all have the same
  bool owned = true;                 // the memory is the library's

  std::vector<std::chrono::nanoseconds> nap;  // by world rank
  std::vector<std::vector<Node>> branches;
};

struct RandomProgram {
  int ranks = 0;
  std::vector<std::vector<int>> groups;  // world ranks; the first is all
  std::vector<Node> body;                // ends with a barrier on each group, the world last
  int numbers = 0;
};

// `ranks` 0: as many as are drawn.
RandomProgram random_program(std::uint64_t seed, int ranks = 0);
std::string to_text(const RandomProgram& program);  // a step a line

// What `program` gives world rank `rank`, a member of its group, for the Issue `node`.
std::vector<double> expected(const RandomProgram& program, const Node& node, int rank);
// What it puts in.
std::vector<double> contribution(const RandomProgram& program, const Node& node, int rank);
// How many elements group rank `a` sends to `b` in an all_to_all.
std::int64_t block(const Node& node, int a, int b);
int rank_in(const std::vector<int>& group, int rank);  // -1: it is not

}  // namespace coshard::testing
