// Random programs over several processes.
#include <algorithm>
#include <iterator>

#include "tests/runtime/simulation/run_program.h"
#include "tests/runtime/simulation/verdict.h"

namespace coshard::testing {
namespace {

constexpr int kRanks = 4;

SimOptions spread(int processes, Dice& dice) {
  static constexpr std::chrono::nanoseconds kSlowest[] = {
      std::chrono::microseconds(1), std::chrono::milliseconds(1), std::chrono::milliseconds(100)};
  SimOptions sim;
  sim.processes = processes;
  sim.network.slowest = kSlowest[dice.below(3)];
  return sim;
}

bool has_deadline(const std::vector<Node>& steps) {
  return std::ranges::any_of(steps, [](const Node& node) {
    return node.step == Step::Overdue ||
           std::ranges::any_of(node.branches, [](const auto& b) { return has_deadline(b); });
  });
}

}  // namespace

std::string judge_spread(std::uint64_t seed) {
  const RandomProgram program = random_program(seed, kRanks);
  Dice dice(~seed);
  std::vector<int> log;
  for (const int processes : {1, 2, 4}) {
    const Report report =
        run_program(program, seed, std::nullopt, nullptr, spread(processes, dice));
    const std::string text = str_cat("over ", processes, " processes: ");
    if (std::string verdict = judge_success(report); !verdict.empty()) return text + verdict;
    if (processes == 1) log = report.ranks[0].log;
    if (log != report.ranks[0].log) return text + "another order than in one process";
  }
  return "";
}

std::string judge_lossy(std::uint64_t seed, Tally& tally) {
  const RandomProgram program = random_program(seed, kRanks);
  Dice dice(~seed);
  SimOptions sim = spread(dice.one_in(2) ? 2 : 4, dice);
  sim.network.lost = 0.002 * (1 + dice.below(20));
  const Report report = run_program(program, seed, std::nullopt, nullptr, sim);
  if (!report.end.failed) {
    ++tally.right;
    // A deadline of the program's may end its branches on some ranks alone.
    return has_deadline(program.body) ? wrong_in(report) : judge_success(report);
  }
  ++tally.failed;
  if (std::string wrong = wrong_in(report); !wrong.empty()) return "wrong numbers: " + wrong;
  const testing::End& end = report.end;
  const bool missing =
      (end.is(ErrorKind::Timeout) || end.is(ErrorKind::CommFailed)) && end.names("missing: ");
  const bool differ =
      has_deadline(program.body) && end.is(ErrorKind::CommFailed) && end.names("ranks disagree on");
  if (!missing && !differ) return str_cat("ended with ", end);
  for (const RankReport& rank : report.ranks)
    if (rank.end.failed && !rank.end.typed) return str_cat(rank.end);
  return "";
}

std::string judge_killed(std::uint64_t seed, Tally& tally) {
  const RandomProgram program = random_program(seed, kRanks);
  Dice dice(~seed);
  const int processes = dice.one_in(2) ? 2 : 4;
  SimOptions sim = spread(processes, dice);
  const int dead = dice.below(processes);
  sim.network.deaths.push_back({dead, dice.below(60)});
  const Report report = run_program(program, seed, std::nullopt, nullptr, sim);
  if (std::string wrong = wrong_in(report); !wrong.empty()) return "wrong numbers: " + wrong;
  const auto names_it = [&](const testing::End& end) {
    return end.names(str_cat("process ", dead, " has died"));
  };
  if (!report.end.failed) {
    ++tally.right;
    for (const RankReport& rank : report.ranks)
      if (rank.end.failed && !names_it(rank.end)) return str_cat(rank.end);
    return "";
  }
  ++tally.failed;
  if (!names_it(report.end)) return str_cat("ended with ", report.end);
  for (int r = 0; r < kRanks; ++r) {
    const RankReport& rank = report.ranks[static_cast<std::size_t>(r)];
    if (!rank.end.failed || names_it(rank.end)) continue;
    return str_cat("process ", dead, " of ", processes, ": rank ", r, " ended with ", rank.end);
  }
  return "";
}

}  // namespace coshard::testing
