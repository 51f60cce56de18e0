// Ranks in this process.
#include <exception>
#include <map>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "runtime/control/failure_record.h"
#include "runtime/coro/deadlock_detector.h"
#include "runtime/launch/insist.h"
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/rank_host.h"
#include "runtime/launch/rank_world.h"
#include "runtime/launch/run_state.h"
#include "runtime/launch/stack_report.h"

namespace coshard {
namespace {

constexpr const char* kDeadlock = "deadlock: every rank waits and nothing can wake one: ";

// Order matters: later members use earlier ones; the deadlock detector calls back only while ranks
// run.
struct Run {
  Run(const WorldOptions& settled, std::unique_ptr<RankDirectory> all, const Program& main,
      Parker& watcher)
      : options(settled),
        program(main),
        directory(std::move(all)),
        state(*directory, options, watcher) {
    for (const int rank : directory->here()) sleepers[rank] = &deadlock_detector.add(rank);
    directory->count_in(deadlock_detector);
  }

  const WorldOptions& options;
  const Program& program;
  DeadlockDetector deadlock_detector{
      [this](int rank) { state.wake(rank); },
      [this](const std::string& all) { state.on_deadlock(str_cat(kDeadlock, all)); }};
  std::unique_ptr<RankDirectory> directory;
  RunState state;
  std::map<int, WaiterState*> sleepers;
};

Failure failure_in(const World& world, const std::exception_ptr& error) {
  return failure_of(world.rank(), error, world.module_of(error));
}

void run_program(Run& run, World& world, Executor& executor) {
  executor.on_failing([&](const Executor::Failing* failing) {
    const Failure failure = failing ? failure_in(world, failing->error) : Failure{world.rank()};
    run.state.failing(failure, failing);
  });
  bool has_ended = false;
  try {
    executor.run(run.program(world));
    // Queued work may still fail, and peers may need it; this is the last wait for it.
    world.device()->synchronize();
    world.device()->settle();
    has_ended = true;
    world.require_finished();
  } catch (...) {
    std::exception_ptr error = std::current_exception();
    insist([&] {
      const Failure failure = has_ended ? failure_in(world, error) : end_of(world, error);
      note_left(error, world.rank(), "");
      run.state.failed(failure, error);
    });
  }
  executor.destroy_beside();
  executor.on_failing(nullptr);
}

void run_world(Run& run, int rank, Executor& executor) {
  const std::unique_ptr<World> world = make_world(rank, run.options, *run.directory, executor);
  run_program(run, *world, executor);
  run.directory->leave(rank);
}

void fail_rank(Run& run, int rank, const std::exception_ptr& error) {
  insist([&] { run.state.failed(failure_of(rank, error), error); });
}

void run_rank(Run& run, int rank, Executor& executor) {
  try {
    const StackReport report(run.options.report_stack_overflow);
    run.state.begins(rank, executor);
    run_world(run, rank, executor);
  } catch (...) {
    fail_rank(run, rank, std::current_exception());
  }
}

}  // namespace

void run_ranks_on(RankHost& host, const WorldOptions& options,
                  std::unique_ptr<RankDirectory> directory, const Program& program) {
  RankContext::current();  // created now: while a failure is reported there may be no memory
  Run run(options, std::move(directory), program, host.parker());
  const RankProgram ranks{
      [&](int rank, Executor& executor) { run_rank(run, rank, executor); },
      [&](int rank, const std::exception_ptr& error) { fail_rank(run, rank, error); },
      [&](int rank) { run.state.ends(rank); },
      [&] { insist([&] { run.state.watch(); }); },
      [&](int rank) {
        const auto found = run.sleepers.find(rank);
        return found == run.sleepers.end() ? nullptr : found->second;
      },
  };
  host.run(run.directory->here(), *run.directory->thread_group(), ranks);
  run.directory->end();
  run.state.watch();  // reports failures heard during end()
  run.state.rethrow();
}

void run_ranks(const WorldOptions& options, const Program& program) {
  CS_REQUIRE(program, "run_ranks: the program is an empty function");
  const WorldOptions all = reporting_failure([&] { return settled(options); });
  const auto host =
      all.rank_threads > 0 ? shared_threads(all.rank_threads, all.stack_bytes) : own_threads();
  run_ranks_on(*host, all, reporting_failure([&] { return make_directory(all); }), program);
}

}  // namespace coshard
