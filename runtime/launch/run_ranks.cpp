// Ranks as threads of this process.
#include <pthread.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/error.h"
#include "runtime/launch/rank_seat.h"
#include "runtime/launch/roster.h"
#include "runtime/launch/run_state.h"
#include "runtime/launch/world.h"

namespace coshard {
namespace {

constexpr const char* kStandstill = "every rank waits, and nothing is left that could wake one: ";

// In this order: what is later uses what is earlier.
struct Run {
  Run(const WorldOptions& settled, const Program& main) : options(settled), program(main) {
    for (std::size_t i = 0; i < seats.size(); ++i) seats[i].count_in(census, roster->here()[i]);
    roster->count_in(census);
  }
  RankSeat& seat_of(int rank) {
    const auto place = std::ranges::find(roster->here(), rank) - roster->here().begin();
    return seats[static_cast<std::size_t>(place)];
  }

  const WorldOptions& options;
  const Program& program;
  std::unique_ptr<Roster> roster = make_roster(options);
  Census census{[this](int rank) { seat_of(rank).ring(); },
                [this](const std::string& all) { state.standstill(cat(kStandstill, all)); }};
  std::vector<RankSeat> seats = std::vector<RankSeat>(roster->here().size());
  RunState state{*roster, options};
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

void run_rank(Run& run, int rank, RankSeat& seat) {
  pthread_setname_np(pthread_self(), cat("rank ", rank).c_str());
  {
    const RankSeat::Taken taken(seat);
    try {
      run_world(run, rank, seat.executor());
    } catch (...) {
      const std::exception_ptr error = std::current_exception();
      run.state.failed({rank, text_of(error)}, error);
    }
    seat.leave_census();
  }
  run.state.ends(rank);
}

std::vector<std::thread> start(Run& run) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < run.seats.size(); ++i) {
    const int rank = run.roster->here()[i];
    RankSeat& seat = run.seats[i];
    run.state.begins(rank, seat.executor());
    try {
      threads.emplace_back([&run, &seat, rank] { run_rank(run, rank, seat); });
    } catch (...) {  // the system has no thread left for it
      const std::exception_ptr error = std::current_exception();
      run.state.failed({rank, text_of(error)}, error);
      seat.leave_census();
      run.state.ends(rank);
      break;
    }
  }
  return threads;
}

void check(const WorldOptions& options) {
  CS_REQUIRE(options.ranks >= 1, "ranks must be at least 1, got ", options.ranks);
  CS_REQUIRE(options.threads >= 0, "threads must be at least 0, got ", options.threads);
  CS_REQUIRE(options.timeout.count() >= 0, "timeout must be at least 0, got ",
             options.timeout.count(), " ms");
  CS_REQUIRE(options.grace.count() >= 0, "grace must be at least 0, got ", options.grace.count(),
             " ms");
  check_communicator(options.communicator);
}

}  // namespace

void run_ranks(const WorldOptions& options, const Program& program) {
  check(options);
  WorldOptions settled = options;
  if (settled.threads == 0) {
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    settled.threads = std::max(1, cores / settled.ranks);
  }
  // Decided once: when the last source of a token goes, it is too late to ask, but not to agree.
  if (!settled.stop.stop_possible()) settled.stop = {};
  Run run{settled, program};
  std::vector<std::thread> threads = start(run);
  run.state.watch();
  for (std::thread& thread : threads) thread.join();
  run.state.rethrow();
}

}  // namespace coshard
