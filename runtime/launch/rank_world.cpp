#include "runtime/launch/rank_world.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <typeinfo>
#include <utility>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/comm/make_communicator.h"
#include "runtime/comm/peer_failure.h"
#include "runtime/device/make_device.h"
#include "runtime/host.h"
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/rank_hosts.h"

namespace coshard {
namespace {

constexpr int kRanksOfOneProcess = 2;
constexpr std::size_t kLeastStack = std::size_t{256} << 10;
constexpr std::size_t kMostStack = std::size_t{1} << 36;

// `place`: the rank's index on its host.
std::shared_ptr<Device> device_of(int rank, int place, const WorldOptions& options) {
  if (options.make_device) return options.make_device(rank);
  const int count = device_count(options.device);
  return make_device(options.device, {count > 0 ? place % count : place, options.threads});
}

// Joins all ranks through host memory, whatever is done with `world` later. Null if no stop can be
// requested.
std::shared_ptr<Communicator> control_of(Communicator& world, const WorldOptions& options) {
  if (options.stop == std::stop_token()) return nullptr;
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.subgroup(all, "control");
}

// Checks the options that only the local communicator supports.
void check_local(const WorldOptions& options) {
  if (options.link) check(*options.link);
  CS_REQUIRE(options.progress_threads >= 0, "progress_threads must be at least 0, got ",
             options.progress_threads);
  if (options.communicator == "local") return;
  CS_REQUIRE(!options.link, "link ", to_string(*options.link), " needs communicator local, got ",
             options.communicator);
  CS_REQUIRE(options.progress_threads == 0, "progress_threads ", options.progress_threads,
             " needs communicator local, got ", options.communicator);
}

// How many cores each rank gets.
int cores_per_rank(const WorldOptions& options, const Processes& processes) {
  const int cores = usable_cores();
  const int mine = std::max(1, options.ranks / processes.all);
  const int side_by_side = options.rank_threads > 0 ? std::min(options.rank_threads, mine) : mine;
  return std::max(1, cores / (side_by_side * processes.here));
}

void check(const WorldOptions& options) {
  CS_REQUIRE(options.ranks >= 0, "ranks must be at least 0, got ", options.ranks);
  CS_REQUIRE(options.threads >= 0, "threads must be at least 0, got ", options.threads);
  CS_REQUIRE(options.timeout.count() >= 0, "timeout must be at least 0, got ",
             options.timeout.count(), " ms");
  CS_REQUIRE(options.grace.count() >= 0, "grace must be at least 0, got ", options.grace.count(),
             " ms");
  CS_REQUIRE(options.rank_threads >= 0, "rank_threads must be at least 0, got ",
             options.rank_threads);
  CS_REQUIRE(options.stack_bytes >= kLeastStack && options.stack_bytes <= kMostStack,
             "stack_bytes must be ", kLeastStack, " to ", kMostStack, ", got ",
             options.stack_bytes);
  if (options.rank_threads > 0 && options.device != DeviceKind::Cpu)
    fail(ErrorKind::Unsupported,
         str_cat("rank_threads ", options.rank_threads,
                 ": ranks share threads only on device cpu, not on ", to_string(options.device)));
  check_local(options);
  check_communicator(options.communicator);
  if (!options.make_device) check_backend(options.device);
}

// Of what the program must not leave behind; "": nothing is left.
std::string what_is_left(const World& world) {
  try {
    world.require_finished();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

}  // namespace

WorldOptions settled(const WorldOptions& options, const Processes& processes) {
  check(options);
  if (processes.all > 1 && options.device != DeviceKind::Cpu && options.communicator == "local" &&
      !options.make_device)
    fail(ErrorKind::Unsupported,
         str_cat("communicator local cannot move data of device ", to_string(options.device),
                 " between processes, and there are ", processes.all, ": use nccl"));
  WorldOptions all = options;
  if (all.ranks == 0) all.ranks = processes.all > 1 ? processes.all : kRanksOfOneProcess;
  if (all.threads == 0) all.threads = cores_per_rank(all, processes);
  // Decided once for all ranks: a token's last source may be destroyed later, which must not change
  // the answer.
  if (!all.stop.stop_possible()) all.stop = {};
  return all;
}

WorldOptions settled(const WorldOptions& options) { return settled(options, processes(options)); }

Failure end_of(const World& world, std::exception_ptr& error) {
  note_left(error, world.rank(), "");
  Failure failure = failure_of(world.rank(), error, world.module_of(error));
  const std::string left = what_is_left(world);
  if (left.empty() || failure.text.ends_with(left)) return failure;
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailure&) {  // the peer tells
    return failure;
  } catch (const Error& known) {
    failure.text += "; " + left;
    if (typeid(known) != typeid(Error)) return failure;
    Error both(known.kind(), failure.text);
    both.left(world.rank(), failure.module);
    error = std::make_exception_ptr(both);
  } catch (...) {  // keeps its type and text: the failure alone says it
    failure.text += "; " + left;
  }
  return failure;
}

std::unique_ptr<World> make_world(int rank, const WorldOptions& options, RankDirectory& directory,
                                  Executor& executor) {
  *hosts_of_ranks = directory.hosts();
  const std::int64_t timeout_ns = std::chrono::nanoseconds(options.timeout).count();
  const std::shared_ptr<Device> device = device_of(rank, directory.place_on_host(rank), options);
  device->set_timeout(timeout_ns);
  executor.set_timeout(timeout_ns, str_cat(" of rank ", rank));
  auto control = directory.control(rank);
  control->set_timeout(timeout_ns);
  auto stopping = control_of(*control, options);
  auto communicator = make_communicator(options.communicator, control, device);
  return std::make_unique<World>(rank, options, device, std::move(communicator), executor,
                                 std::move(stopping), std::move(control));
}

}  // namespace coshard
