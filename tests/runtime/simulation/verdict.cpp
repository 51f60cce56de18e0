#include "tests/runtime/simulation/verdict.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "tests/runtime/simulation/run_program.h"

namespace coshard::testing {
namespace {

constexpr int kSpreadRanks = 4;

std::string text(const std::vector<int>& log) {
  std::string all;
  for (const int number : log) all += str_cat(all.empty() ? "" : " ", number);
  return all;
}

template <class F>
void each_node(const std::vector<Node>& steps, const F& f) {
  for (const Node& node : steps) {
    f(node);
    for (const auto& branch : node.branches) each_node(branch, f);
  }
}
// Those that nothing cancels.
template <class F>
void each_safe_node(const std::vector<Node>& steps, const F& f) {
  for (const Node& node : steps) {
    f(node);
    if (node.step == Step::TryAll || node.step == Step::Overdue) continue;
    for (const auto& branch : node.branches) each_safe_node(branch, f);
  }
}

const Node* issue_of(const RandomProgram& program, int number) {
  const Node* found = nullptr;
  each_node(program.body, [&](const Node& node) {
    if (node.number == number) found = &node;
  });
  return found;
}

// A collective that rank `rank` shares with somebody: others notice what it does there.
bool is_shared(const RandomProgram& program, const Node& node, int rank) {
  const std::vector<int>& group = program.groups[static_cast<std::size_t>(node.group)];
  return node.step == Step::Issue && node.kind != CollectiveKind::Send && group.size() > 1 &&
         rank_in(group, rank) >= 0;
}

bool has_shared(const RandomProgram& program, const std::vector<Node>& steps, int rank) {
  bool any = false;
  each_safe_node(steps, [&](const Node& node) { any |= is_shared(program, node, rank); });
  return any;
}

// The number of the first of them: what is given up there is followed by nothing.
int last_barriers(const RandomProgram& program) {
  return program.body[program.body.size() - 2 * program.groups.size()].number;
}

// Where `rank` can differ in that way.
std::vector<int> places(const RandomProgram& program, Differs how, int rank) {
  std::vector<int> found;
  const auto if_ = [&](bool fits, const Node& node) {
    if (fits) found.push_back(node.number);
  };
  switch (how) {
    case Differs::Leaves:
    case Differs::NeverComes:
    case Differs::WaitsForNone:
      for (const Node& node : program.body) found.push_back(node.number);
      found.pop_back();  // the barrier of all has been issued
      break;
    case Differs::Dies: found = {0, 1, 2, 3, 5, 8, 13}; break;
    case Differs::Throws:  // elsewhere a sibling may be the first to throw
      each_safe_node(program.body, [&](const Node& node) { if_(true, node); });
      break;
    case Differs::SwapsBranches:
      each_safe_node(program.body, [&](const Node& node) {
        const auto& all = node.branches;
        if_(node.step == Step::All && all.size() % 2 == 0 && has_shared(program, all.front(), rank),
            node);
      });
      break;
    case Differs::GivesUp:  // where the others do not
      each_safe_node(program.body, [&](const Node& node) {
        if_(node.step == Step::Await && is_shared(program, *issue_of(program, node.of), rank),
            node);
      });
      std::erase_if(found, [&](int number) { return number >= last_barriers(program); });
      break;
    case Differs::Skips:
    case Differs::OtherCount:
      each_node(program.body, [&](const Node& node) {
        if_(is_shared(program, node, rank) &&
                (how == Differs::Skips || node.kind == CollectiveKind::AllReduce),
            node);
      });
      break;
  }
  return found;
}

std::optional<Difference> draw_difference(const RandomProgram& program, Dice& dice) {
  Difference drawn;
  drawn.how = static_cast<Differs>(dice.below(static_cast<int>(Differs::Dies) + 1));
  drawn.rank = dice.below(program.ranks);
  const std::vector<int> where = places(program, drawn.how, drawn.rank);
  if (where.empty()) return std::nullopt;
  drawn.number = where[static_cast<std::size_t>(dice.below(static_cast<int>(where.size())))];
  return drawn;
}

// Which errors tell of it.
bool fits(Differs how, const Report& report) {
  const testing::End& end = report.end;
  // Another branch of the rank that timed out was the first to end.
  const bool by_echo = end.is(ErrorKind::CommFailed) && end.names("timeout after 60");
  switch (how) {
    case Differs::Throws: return report.boom;
    case Differs::NeverComes:
      // Where the program has a deadline, and only some waited for a collective by then.
      if (end.is(ErrorKind::CommFailed) && end.names("gave up waiting for")) return true;
      return (end.is(ErrorKind::Timeout) || by_echo) && end.names("rank");
    case Differs::WaitsForNone:
      if (end.is(ErrorKind::Timeout)) return end.names("step");  // in a task that has a deadline
      return end.is(ErrorKind::CommFailed) && end.names("rank");
    case Differs::Skips:
      if (end.is(ErrorKind::Timeout)) return end.names("rank");
      [[fallthrough]];
    default: return end.is(ErrorKind::CommFailed) && end.names("rank");
  }
}

}  // namespace

std::string wrong_in(const Report& report) {
  for (const RankReport& rank : report.ranks)
    if (!rank.wrong.empty()) return "wrong numbers: " + rank.wrong;
  return "";
}

std::string judge_success(const Report& report) {
  if (report.end.failed) return str_cat("it failed: ", report.end);
  if (std::string wrong = wrong_in(report); !wrong.empty()) return wrong;
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const RankReport& rank = report.ranks[r];
    if (rank.log != report.ranks[0].log)
      return str_cat("the order on rank ", r, " is ", text(rank.log), ", on rank 0 ",
                     text(report.ranks[0].log));
    constexpr std::int64_t kMost = 1800'000'000'000;  // half of what a sibling sleeps
    if (rank.end_ns > kMost) return str_cat("it took ", rank.end_ns / 1'000'000'000, " s");
  }
  return "";
}

std::string judge_one_structure(std::uint64_t seed) {
  const RandomProgram program = random_program(seed);
  return judge_success(run_program(program, seed));
}

std::string judge_difference(std::uint64_t seed, int processes) {
  const RandomProgram program = random_program(seed, processes > 1 ? kSpreadRanks : 0);
  Dice dice(~seed);
  const std::optional<Difference> difference = draw_difference(program, dice);
  if (!difference) return "";
  const Report report = run_program(program, seed, difference, nullptr, {.processes = processes});
  const RankReport& its = report.ranks[static_cast<std::size_t>(difference->rank)];
  const Differs how = difference->how;
  const std::string name = str_cat("difference ", static_cast<int>(how), " at ", difference->number,
                                   " on rank ", difference->rank, ": ");
  if (how == Differs::Dies ? !its.end.failed && !report.end.failed : !its.different) {
    const std::string verdict = judge_success(report);
    return verdict.empty() ? "" : name + verdict;
  }
  if (!report.end.failed) return name + "nobody noticed";
  if (!fits(how, report)) return str_cat(name, "ended with ", report.end);
  // One that is missing may be made up for by the next of its kind.
  if (how == Differs::Skips) return "";
  if (std::string wrong = wrong_in(report); !wrong.empty()) return name + wrong;
  // What is told to another process comes late: by then it may have all that it waits for.
  const bool may_be_late = processes > 1 && (how == Differs::Throws || how == Differs::Dies);
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const bool left = !report.ranks[r].began ||
                      (how == Differs::Leaves && static_cast<int>(r) == difference->rank);
    const testing::End& end = report.ranks[r].end;
    if (!left && !end.failed && may_be_late) continue;
    if (!left && !end.failed) return str_cat(name, "rank ", r, " did not notice");
    if (!left && !end.typed && !(how == Differs::Throws)) return str_cat(name, end);
  }
  return "";
}

}  // namespace coshard::testing
