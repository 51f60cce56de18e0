// Ranks in this process.
#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/error.h"
#include "runtime/launch/rank_host.h"
#include "runtime/launch/roster.h"
#include "runtime/launch/run_state.h"
#include "runtime/launch/world.h"

namespace coshard {
namespace {

constexpr const char* kStandstill = "every rank waits, and nothing is left that could wake one: ";

// In this order: what is later uses what is earlier.
struct Run {
  Run(const WorldOptions& settled, const Program& main) : options(settled), program(main) {
    if (options.progress_threads > 0) return;  // they wake ranks too
    for (const int rank : roster->here()) sleepers[rank] = &census.add(rank);
    roster->count_in(census);
  }

  const WorldOptions& options;
  const Program& program;
  std::unique_ptr<Roster> roster = make_roster(options);
  RunState state{*roster, options};
  Census census{[this](int rank) { state.ring(rank); },
                [this](const std::string& all) { state.standstill(cat(kStandstill, all)); }};
  std::map<int, Sleeper*> sleepers;
};

Failure failure_of(const World& world, const std::exception_ptr& error) {
  return {world.rank(), text_of(error), world.module_of(error)};
}

void run_program(Run& run, World& world, Executor& executor) {
  executor.on_failing([&](const std::exception_ptr& error) {
    const Failure failure = error ? failure_of(world, error) : Failure{world.rank()};
    run.state.failing(failure, error);
  });
  try {
    executor.run(run.program(world));
    // What is still queued may fail, and peers may need it; nobody waits for it later.
    world.device()->synchronize();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    run.state.failed(failure_of(world, error), error);
  }
  executor.on_failing(nullptr);
}

std::shared_ptr<Device> device_of(int rank, const WorldOptions& options) {
  if (options.make_device) return options.make_device(rank);
  const int count = device_count(options.device);
  return make_device(options.device, {count > 0 ? rank % count : rank, options.threads});
}

// Of all ranks and on the host, whatever is done with `world` later. Null where nobody can ask for
// a stop.
std::shared_ptr<Communicator> control_of(Communicator& world, const WorldOptions& options) {
  if (options.stop == std::stop_token()) return nullptr;
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.subgroup(all, "control");
}

void run_world(Run& run, int rank, Executor& executor) {
  const WorldOptions& options = run.options;
  const std::int64_t timeout_ns = std::chrono::nanoseconds(options.timeout).count();
  const std::shared_ptr<Device> device = device_of(rank, options);
  device->set_timeout(timeout_ns);
  auto control = run.roster->control(rank);
  control->set_timeout(timeout_ns);
  auto stopping = control_of(*control, options);
  auto communicator = make_communicator(options.communicator, std::move(control), device);
  World world(rank, options, device, std::move(communicator), executor, std::move(stopping));
  run_program(run, world, executor);
  run.roster->leave(rank);
}

void run_rank(Run& run, int rank, Executor& executor) {
  run.state.begins(rank, executor);
  try {
    run_world(run, rank, executor);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    run.state.failed({rank, text_of(error)}, error);
  }
}

// What only the communicator local can do.
void check_local(const WorldOptions& options) {
  if (options.link) check(*options.link);
  CS_REQUIRE(options.progress_threads >= 0, "progress_threads must be at least 0, got ",
             options.progress_threads);
  if (options.communicator == "local") return;
  CS_REQUIRE(!options.link, "link ", to_string(*options.link), " is for communicator local, got ",
             options.communicator);
  CS_REQUIRE(options.progress_threads == 0, "progress_threads ", options.progress_threads,
             " is for communicator local, got ", options.communicator);
}

// How many cores each rank has for itself.
int cores_per_rank(const WorldOptions& options) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int side_by_side =
      options.rank_threads > 0 ? std::min(options.rank_threads, options.ranks) : options.ranks;
  return std::max(1, cores / side_by_side);
}

void check(const WorldOptions& options) {
  CS_REQUIRE(options.ranks >= 1, "ranks must be at least 1, got ", options.ranks);
  CS_REQUIRE(options.threads >= 0, "threads must be at least 0, got ", options.threads);
  CS_REQUIRE(options.timeout.count() >= 0, "timeout must be at least 0, got ",
             options.timeout.count(), " ms");
  CS_REQUIRE(options.grace.count() >= 0, "grace must be at least 0, got ", options.grace.count(),
             " ms");
  CS_REQUIRE(options.rank_threads >= 0, "rank_threads must be at least 0, got ",
             options.rank_threads);
  if (options.rank_threads > 0 && options.device != DeviceKind::Cpu)
    fail(ErrorKind::Unsupported,
         cat("rank_threads of ", options.rank_threads,
             ": only ranks on the cpu can share a thread, not on ", to_string(options.device)));
  check_local(options);
  check_communicator(options.communicator);
}

WorldOptions settled_options(const WorldOptions& options) {
  check(options);
  WorldOptions settled = options;
  if (settled.threads == 0) settled.threads = cores_per_rank(options);
  // Decided once: when the last source of a token goes, it is too late to ask, but not to agree.
  if (!settled.stop.stop_possible()) settled.stop = {};
  return settled;
}

}  // namespace

void run_ranks_on(RankHost& host, const WorldOptions& options, const Program& program) {
  const WorldOptions settled = settled_options(options);
  Run run(settled, program);
  const RankProgram ranks{
      [&](int rank, Executor& executor) { run_rank(run, rank, executor); },
      [&](int rank, const std::exception_ptr& error) {
        run.state.failed({rank, text_of(error)}, error);
      },
      [&](int rank) { run.state.ends(rank); },
      [&] { run.state.watch(); },
      [&](int rank) {
        const auto found = run.sleepers.find(rank);
        return found == run.sleepers.end() ? nullptr : found->second;
      },
  };
  host.run(settled.ranks, *run.roster->fabric(), ranks);
  run.state.rethrow();
}

void run_ranks(const WorldOptions& options, const Program& program) {
  const auto host = options.rank_threads > 0 ? shared_threads(options.rank_threads) : own_threads();
  run_ranks_on(*host, options, program);
}

}  // namespace coshard
