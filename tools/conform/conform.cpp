#include "tools/conform/conform.h"

#include <mutex>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::conform {
namespace {

// Long enough for the slowest case under a sanitizer, short enough that a hang is a failure soon.
constexpr std::chrono::seconds kTimeout{20};

// The results of the ranks of one case.
struct Outcome {
  explicit Outcome(const Case& c) : source(c), ranks(static_cast<std::size_t>(c.ranks())) {}

  const Case& source;
  std::mutex mutex;
  std::vector<RankResult> ranks;
  int here = 0;         // ranks in this process
  int refused = 0;      // of them: those whose step `at` failed with an error of the call
  std::string failure;  // the first
  std::string op;       // the last operator, with its layouts

  void fail(const std::string& text) {
    const std::scoped_lock lock(mutex);
    if (failure.empty()) failure = text;
  }
};

bool must_fail(const Case& c) { return c.spec.at("expect").is_string(); }

// Runs the steps before the one that must fail, or all.
Task<void> run_steps(Program& program, StepCounter& counter, std::size_t count, Outcome& outcome) {
  for (std::size_t at = 0; at < count; ++at) {
    counter.begin(at);
    try {
      co_await run_step(program, at);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::CommFailed)
        outcome.fail(str_cat(program.doing, ": ", error.what()));
      throw;
    } catch (const std::exception& error) {
      outcome.fail(str_cat(program.doing, ": ", error.what()));
      throw;
    }
    if (program.source.spec.at("steps")[at].at("do") == "op" && program.world.rank() == 0)
      outcome.op = program.doing;
  }
}

Task<void> run_refused_step(Program& program, std::size_t at, Outcome& outcome) {
  try {
    co_await run_step(program, at);
    program.world.device()->synchronize();  // reports errors that kernels found
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::BadInput) {
      const std::scoped_lock lock(outcome.mutex);
      ++outcome.refused;
      co_return;
    }
    outcome.fail(
        str_cat(program.doing, " failed as ", to_string(error.kind()), ": ", error.what()));
    co_return;
  }
  outcome.fail(str_cat(program.doing, " was accepted; the case expects an error"));
}

Task<void> run_rank(World& world, Outcome& outcome) {
  const Case& c = outcome.source;
  {
    const std::scoped_lock lock(outcome.mutex);
    ++outcome.here;
  }
  manual_seed(1);
  StepCounter counter(world);
  Program program(world, c);
  const std::size_t steps = c.spec.at("steps").size();
  const std::size_t count = must_fail(c) ? c.spec.at("at").get<std::size_t>() : steps;
  co_await run_steps(program, counter, count, outcome);
  if (must_fail(c)) {
    co_await run_refused_step(program, count, outcome);
    co_return;
  }
  RankResult& result = outcome.ranks[static_cast<std::size_t>(world.rank())];
  const Json& checks = c.spec.at("expect");
  for (std::size_t i = 0; i < checks.size(); ++i)
    if (!checks[i].contains("collectives"))
      result.tensors[i] = snapshot(subject_of(program, checks[i]));
  result.steps = counter.steps();
}

}  // namespace

std::string run_case(const Case& c, WorldOptions options, const Judge& judge) {
  Outcome outcome(c);
  try {
    options.ranks = c.ranks();
    options.threads = 1;
    options.timeout = kTimeout;
    run_ranks(options, [&outcome](World& world) { return run_rank(world, outcome); });
    if (outcome.failure.empty() && must_fail(c) && outcome.refused != outcome.here)
      outcome.fail(str_cat("refused on ", outcome.refused, " of ", outcome.here, " ranks"));
    if (outcome.failure.empty() && !must_fail(c)) outcome.failure = judge(c, outcome.ranks);
  } catch (const std::exception& error) {
    outcome.fail(error.what());
  }
  if (outcome.failure.empty()) return "";
  return outcome.failure + (outcome.op.empty() ? "" : " after " + outcome.op);
}

Tally run_directory(const std::string& directory, const std::string& only, std::ostream& out,
                    const WorldOptions& world) {
  Tally tally;
  for (const std::string& path : case_files(directory)) {
    for (const Case& c : read_cases(path)) {
      if (c.name.find(only) == std::string::npos) continue;
      const std::string failure = run_case(c, world);
      ++(failure.empty() ? tally.passed : tally.failed);
      if (!failure.empty()) out << "FAIL " << c.name << ": " << failure << "\n" << std::flush;
    }
  }
  CS_REQUIRE(tally.passed + tally.failed > 0, "--only ", only, ": no case in ", directory,
             " has this in its name");
  out << tally.passed << " passed, " << tally.failed << " failed\n";
  return tally;
}

}  // namespace coshard::conform
