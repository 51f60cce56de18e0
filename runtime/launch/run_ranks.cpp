// Ranks in this process.
#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "runtime/comm/local/fabric.h"
#include "runtime/comm/make_communicator.h"
#include "runtime/device/make_device.h"
#include "runtime/error.h"
#include "runtime/launch/rank_host.h"
#include "runtime/launch/world.h"

namespace coshard {
namespace {

bool is_secondary(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailure&) {
    return true;
  } catch (...) {
    return false;
  }
}

// What the ranks of one run share: who runs, and what went wrong first.
class Run {
 public:
  explicit Run(const WorldOptions& options) : fabric_(options.ranks, "world", {options.link}) {}
  LocalFabric& fabric() { return fabric_; }

  void started(Executor* executor) {
    const std::scoped_lock lock(mutex_);
    running_.push_back(executor);
    if (first_ || echo_) interrupt(*executor);
  }
  void ended(Executor* executor) {
    const std::scoped_lock lock(mutex_);
    std::erase(running_, executor);
  }

  // Keeps the first cause and ends all other ranks: those that wait for a collective by the poison,
  // those that wait for time or a socket by an error in their executor.
  void failed(int rank, const std::exception_ptr& error) {
    const bool secondary = is_secondary(error);
    const std::string cause =
        secondary ? text_of(error) : cat("rank ", rank, " ended with: ", text_of(error));
    fabric_.poison(cause);
    const std::scoped_lock lock(mutex_);
    const bool interrupted = first_ || echo_;
    std::exception_ptr& kept = secondary ? echo_ : first_;
    if (!kept) kept = error;
    if (interrupted) return;
    cause_ = cause;
    for (Executor* executor : running_) interrupt(*executor);
  }

  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
    if (echo_) std::rethrow_exception(echo_);
  }

 private:
  void interrupt(Executor& executor) {
    executor.interrupt(std::make_exception_ptr(PeerFailure(cause_)));
  }

  LocalFabric fabric_;
  std::mutex mutex_;  // all below
  std::vector<Executor*> running_;
  std::string cause_;
  std::exception_ptr first_;  // the first error of a rank's own
  std::exception_ptr echo_;   // the first error that only tells of a peer's
};

void run_program(Run& run, World& world, Executor& executor, const Program& program) {
  run.started(&executor);
  try {
    executor.run(program(world));
    // What is still queued may fail, and peers may need it; nobody waits for it later.
    world.device()->synchronize();
  } catch (...) {
    run.ended(&executor);
    run.failed(world.rank(), std::current_exception());
    return;
  }
  run.ended(&executor);
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

void run_rank(Run& run, int rank, const WorldOptions& options, const Program& program,
              Executor& executor) {
  try {
    const std::int64_t timeout_ns = std::chrono::nanoseconds(options.timeout).count();
    const std::shared_ptr<Device> device = device_of(rank, options);
    device->set_timeout(timeout_ns);
    auto control = run.fabric().communicator(rank);
    control->set_timeout(timeout_ns);
    auto stopping = control_of(*control, options);
    auto communicator = make_communicator(options.communicator, std::move(control), device);
    World world(rank, options, device, std::move(communicator), executor, std::move(stopping));
    run_program(run, world, executor, program);
    run.fabric().leave(rank);
  } catch (...) {
    run.failed(rank, std::current_exception());
  }
}

// How many cores each rank has for itself.
int cores_per_rank(const WorldOptions& options) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int side_by_side =
      options.rank_threads > 0 ? std::min(options.rank_threads, options.ranks) : options.ranks;
  return std::max(1, cores / side_by_side);
}

WorldOptions settled_options(const WorldOptions& options) {
  CS_REQUIRE(options.ranks >= 1, "ranks must be at least 1, got ", options.ranks);
  CS_REQUIRE(options.threads >= 0, "threads must be at least 0, got ", options.threads);
  CS_REQUIRE(options.timeout.count() >= 0, "timeout must be at least 0, got ",
             options.timeout.count(), " ms");
  CS_REQUIRE(options.rank_threads >= 0, "rank_threads must be at least 0, got ",
             options.rank_threads);
  if (options.rank_threads > 0 && options.device != DeviceKind::Cpu)
    fail(ErrorKind::Unsupported,
         cat("rank_threads of ", options.rank_threads,
             ": only ranks on the cpu can share a thread, not on ", to_string(options.device)));
  if (options.link) check(*options.link);
  CS_REQUIRE(!options.link || options.communicator == "local", "link ", to_string(*options.link),
             " is for communicator local, got ", options.communicator);
  WorldOptions settled = options;
  if (settled.threads == 0) settled.threads = cores_per_rank(options);
  // Decided once: when the last source of a token goes, it is too late to ask, but not to agree.
  if (!settled.stop.stop_possible()) settled.stop = {};
  return settled;
}

}  // namespace

void run_ranks_on(RankHost& host, const WorldOptions& options, const Program& program) {
  const WorldOptions settled = settled_options(options);
  Run run(settled);
  const RankProgram ranks{
      [&](int rank, Executor& executor) { run_rank(run, rank, settled, program, executor); },
      [&](int rank, const std::exception_ptr& error) { run.failed(rank, error); }};
  host.run(settled.ranks, run.fabric(), ranks);
  run.rethrow();
}

void run_ranks(const WorldOptions& options, const Program& program) {
  const auto host = options.rank_threads > 0 ? shared_threads(options.rank_threads) : own_threads();
  run_ranks_on(*host, options, program);
}

}  // namespace coshard
