#include "tests/runtime/simulation/random_program.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;

class Generator {
 public:
  Generator(std::uint64_t seed, int ranks) : dice_(seed), ranks_(ranks) {}

  RandomProgram make() {
    made_.ranks = ranks_ > 0 ? ranks_ : 2 + dice_.below(4);
    make_groups();
    borrows_ = dice_.one_in(4);
    budget_ = 4 + dice_.below(30);
    made_.body = sequence(0, true);
    for (int g = static_cast<int>(made_.groups.size()) - 1; g >= 0; --g) {
      Node barrier = issue();
      barrier.group = g;
      barrier.kind = CollectiveKind::Barrier;
      barrier.counts.clear();
      made_.body.push_back(barrier);
      made_.body.push_back(await(Step::Await, barrier.number));
    }
    made_.numbers = numbers_;
    return std::move(made_);
  }

 private:
  using Steps = std::vector<Node>;

  void make_groups() {
    std::vector<int> all(static_cast<std::size_t>(made_.ranks));
    std::iota(all.begin(), all.end(), 0);
    made_.groups.push_back(all);
    for (int g = dice_.below(4); g > 0; --g) {
      std::vector<int> members;
      for (const int r : all)
        if (!dice_.one_in(3)) members.push_back(r);
      if (!members.empty()) made_.groups.push_back(members);
    }
  }

  Node step(Step what) {
    Node node;
    node.step = what;
    node.number = numbers_++;
    return node;
  }
  Node await(Step how, int of) {
    Node node = step(how);
    node.of = of;
    return node;
  }
  Node sleep(std::chrono::nanoseconds least, std::chrono::nanoseconds more,
             Step how = Step::Sleep) {
    Node node = step(how);
    for (int r = 0; r < made_.ranks; ++r)
      node.nap.push_back(least + more * dice_.below(1000) / 1000);
    return node;
  }

  Node issue();
  Node message();
  Node branches(int depth, bool only_strand);
  Steps sequence(int depth, bool only_strand, bool may_be_cancelled = false);
  Steps thrower();
  void end(Steps& steps, std::vector<int>& open, int depth, bool may_be_cancelled);
  void add(Steps& steps, std::vector<int>& open, int depth, bool only_strand);

  Dice dice_;
  int ranks_;
  RandomProgram made_;
  int numbers_ = 0;
  int budget_ = 0;
  bool borrows_ = false;  // memory; then nothing is cancelled
};

Node Generator::issue() {
  static constexpr CollectiveKind kKinds[] = {
      CollectiveKind::AllReduce,     CollectiveKind::AllReduce, CollectiveKind::AllGather,
      CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,  CollectiveKind::Broadcast,
      CollectiveKind::Scatter,       CollectiveKind::Barrier};
  Node node = step(Step::Issue);
  node.group = dice_.below(static_cast<int>(made_.groups.size()));
  const int members = static_cast<int>(made_.groups[static_cast<std::size_t>(node.group)].size());
  node.kind = kKinds[dice_.below(8)];
  node.reduce =
      std::array{Reduce::Sum, Reduce::Min, Reduce::Max}[static_cast<std::size_t>(dice_.below(3))];
  node.root = dice_.below(members);
  node.owned = !(borrows_ && dice_.one_in(2));
  const bool large = dice_.one_in(60);
  for (int m = 0; m < members; ++m)
    node.counts.push_back(large ? 4000 + dice_.below(4000) : dice_.below(12));
  return node;
}

Node Generator::message() {
  Node node = issue();
  node.kind = CollectiveKind::Send;
  const int members = static_cast<int>(made_.groups[static_cast<std::size_t>(node.group)].size());
  node.to = members > 1 ? (node.root + 1 + dice_.below(members - 1)) % members : node.root;
  return node;
}

// Some yields and awaits, then the error.
Generator::Steps Generator::thrower() {
  Steps steps;
  for (int turns = dice_.below(4); turns > 0; --turns) {
    if (dice_.one_in(3)) {
      steps.push_back(issue());
      const int of = steps.back().number;
      steps.push_back(await(Step::Await, of));
    } else {
      steps.push_back(step(Step::Yield));
    }
  }
  steps.push_back(step(Step::Throw));
  return steps;
}

Node Generator::branches(int depth, bool only_strand) {
  static constexpr Step kAtTheTop[] = {Step::All, Step::All, Step::TryAll, Step::Overdue,
                                       Step::InTime};
  static constexpr Step kBelow[] = {Step::All, Step::All, Step::TryAll};
  Node node = step(borrows_      ? Step::All
                   : only_strand ? kAtTheTop[dice_.below(5)]
                                 : kBelow[dice_.below(3)]);
  const bool cancels = node.step == Step::TryAll || node.step == Step::Overdue;
  for (int n = 1 + dice_.below(3); n >= 0; --n)
    node.branches.push_back(sequence(depth + 1, false, cancels));
  const auto somewhere = [&] {
    return node.branches.begin() + dice_.below(static_cast<int>(node.branches.size()) + 1);
  };
  if (node.step == Step::TryAll) {
    node.branches.insert(somewhere(), thrower());
    node.branches.insert(somewhere(), Steps{sleep(1h, 1h)});  // does not end alone
  }
  if (node.step == Step::Overdue) node.branches.insert(somewhere(), Steps{sleep(20s, 10s)});
  return node;
}

void Generator::add(Steps& steps, std::vector<int>& open, int depth, bool only_strand) {
  const int what = dice_.below(20);
  if (what < 8) {
    steps.push_back(what < 7 ? issue() : message());
    open.push_back(steps.back().number);
  } else if (what < 12 && !open.empty()) {
    const auto which = open.begin() + dice_.below(static_cast<int>(open.size()));
    steps.push_back(await(dice_.one_in(6) ? Step::WaitInPlace : Step::Await, *which));
    open.erase(which);
  } else if (what < 14) {
    steps.push_back(step(Step::Yield));
  } else if (what < 18 && depth < 3) {
    steps.push_back(branches(depth, only_strand));
  } else if (what < 19) {
    steps.push_back(sleep(0ns, 200ms, Step::Load));
  } else if (only_strand) {
    steps.push_back(sleep(0ns, 200ms));
  }
}

// What is open is awaited, or dropped. Where time may decide, when nobody issues afterwards.
void Generator::end(Steps& steps, std::vector<int>& open, int depth, bool may_be_cancelled) {
  while (!open.empty()) {
    const auto which = open.begin() + dice_.below(static_cast<int>(open.size()));
    if (!dice_.one_in(8)) steps.push_back(await(Step::Await, *which));
    open.erase(which);
  }
  if (depth != 1 || !dice_.one_in(3)) return;
  if (!may_be_cancelled && dice_.one_in(2)) {
    steps.push_back(message());
    const int of = steps.back().number;
    steps.push_back(await(Step::AwaitAny, of));
  }
  steps.push_back(sleep(0ns, 200ms));
}

// `only_strand`: nothing else of this rank runs meanwhile.
Generator::Steps Generator::sequence(int depth, bool only_strand, bool may_be_cancelled) {
  Steps steps;
  std::vector<int> open;
  const int most = depth == 0 ? 12 : 1 + dice_.below(6);
  for (int n = 0; n < most && budget_ > 0; ++n, --budget_) add(steps, open, depth, only_strand);
  end(steps, open, depth, may_be_cancelled);
  return steps;
}

}  // namespace

RandomProgram random_program(std::uint64_t seed, int ranks) {
  return Generator(seed, ranks).make();
}

}  // namespace coshard::testing
