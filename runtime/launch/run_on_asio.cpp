#include "runtime/launch/run_on_asio.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "runtime/comm/local/fabric.h"
#include "runtime/comm/make_communicator.h"
#include "runtime/comm/neighbours.h"
#include "runtime/device/make_device.h"
#include "runtime/error.h"

namespace coshard {
namespace {

bool tells_of_a_peer(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerFailure&) {
    return true;
  } catch (...) {
    return false;
  }
}

// What the ranks of one run share. Owned by them.
class AsioRun {
 public:
  AsioRun(const WorldOptions& settled, Program main,
          const std::vector<boost::asio::any_io_executor>& executors,
          std::function<void(std::exception_ptr)> done)
      : options(settled), program(std::move(main)), fabric(settled.ranks), done_(std::move(done)) {
    for (int rank = 0; rank < options.ranks; ++rank)
      neighbours.contexts.push_back(
          &executors[static_cast<std::size_t>(rank) % executors.size()].context());
  }

  const WorldOptions options;
  const Program program;
  LocalFabric fabric;
  Neighbours neighbours;

  void started(Executor* executor) {
    const std::scoped_lock lock(mutex_);
    running_.push_back(executor);
    if (!cause_.empty()) interrupt(*executor);
  }

  // Keeps the first cause and ends all other ranks.
  void failed(int rank, const std::exception_ptr& error) {
    const bool secondary = tells_of_a_peer(error);
    const std::string cause =
        secondary ? text_of(error) : cat("rank ", rank, " ended with: ", text_of(error));
    fabric.poison(cause);
    const std::scoped_lock lock(mutex_);
    std::exception_ptr& kept = secondary ? echo_ : first_;
    if (!kept) kept = error;
    if (!cause_.empty()) return;
    cause_ = cause;
    for (Executor* executor : running_) interrupt(*executor);
  }

  // It will not be interrupted any more. `well`: not destroyed with its context.
  void ended(int rank, Executor* executor, bool well) {
    fabric.leave(rank);
    std::function<void(std::exception_ptr)> done;
    std::exception_ptr error;
    {
      const std::scoped_lock lock(mutex_);
      std::erase(running_, executor);
      if (!well || ++ended_ == options.ranks) done = std::exchange(done_, nullptr);
      error = first_ ? first_ : echo_;
    }
    if (done && well) done(error);
  }

 private:
  void interrupt(Executor& executor) {
    executor.interrupt(std::make_exception_ptr(PeerFailure(cause_)));
  }

  std::mutex mutex_;  // all below
  std::vector<Executor*> running_;
  std::string cause_;         // what the ranks were ended with; "": they were not
  std::exception_ptr first_;  // the first error of a rank's own
  std::exception_ptr echo_;   // the first error that only tells of a peer's
  int ended_ = 0;
  std::function<void(std::exception_ptr)> done_;  // null: called, or never to be
};

std::shared_ptr<Device> device_on_asio(int rank, const WorldOptions& options) {
  if (options.make_device) return options.make_device(rank);
  const int count = device_count(options.device);
  return make_device(options.device, {count > 0 ? rank % count : rank, options.threads});
}

// Of all ranks and on the host; null where nobody can ask for a stop.
std::shared_ptr<Communicator> control_on_asio(Communicator& world, const WorldOptions& options) {
  if (options.stop == std::stop_token()) return nullptr;
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.subgroup(all, "control");
}

// One rank. Owned by the handlers on its strand, where all of it runs.
class AsioRank : public std::enable_shared_from_this<AsioRank> {
 public:
  AsioRank(std::shared_ptr<AsioRun> run, int rank, const boost::asio::any_io_executor& target)
      : run_(std::move(run)), rank_(rank), executor_(target) {
    executor_.context().neighbours = &run_->neighbours;
    run_->started(&executor_);
  }
  ~AsioRank() {
    if (!ended_) {
      const std::string text = cat("rank ", rank_, " was destroyed with its io_context");
      run_->failed(rank_, std::make_exception_ptr(PeerFailure(text)));
    }
    executor_.run_here([this] {
      executor_.stop_listening();
      destroy_program();
      executor_.context().end();
    });
    if (!ended_) run_->ended(rank_, &executor_, false);
  }
  AsioRank(const AsioRank&) = delete;
  AsioRank& operator=(const AsioRank&) = delete;

  Executor& executor() { return executor_; }

  void start() {
    try {
      executor_.run_here([this] {
        make_world();
        task_ = run_->program(*world_);
        CS_REQUIRE(task_, "rank ", rank_, ": the program gave an empty task");
      });
    } catch (...) {
      return finish(std::current_exception());
    }
    executor_.launch(task_.handle(), shared_from_this(),
                     [this](const std::exception_ptr& error) { finish(error); });
  }

 private:
  void make_world() {
    const WorldOptions& options = run_->options;
    const std::int64_t timeout_ns = std::chrono::nanoseconds(options.timeout).count();
    const std::shared_ptr<Device> device = device_on_asio(rank_, options);
    device->set_timeout(timeout_ns);
    auto control = run_->fabric.communicator(rank_);
    control->set_timeout(timeout_ns);
    auto stopping = control_on_asio(*control, options);
    auto communicator = make_communicator(options.communicator, std::move(control), device);
    world_.emplace(rank_, options, device, std::move(communicator), executor_, std::move(stopping));
  }

  void finish(std::exception_ptr error) {
    executor_.run_here([&] {
      try {
        if (error) std::rethrow_exception(error);
        task_.take();
        // What is still queued may fail, and peers may need it; nobody waits for it later.
        world_->device()->synchronize();
      } catch (...) {
        run_->failed(rank_, std::current_exception());
      }
      destroy_program();
    });
    ended_ = true;
    run_->ended(rank_, &executor_, true);
  }

  void destroy_program() {
    task_ = {};
    world_.reset();
  }

  std::shared_ptr<AsioRun> run_;
  int rank_;
  Executor executor_;
  std::optional<World> world_;
  Task<void> task_;
  bool ended_ = false;
};

WorldOptions settled_on_asio(const WorldOptions& options) {
  CS_REQUIRE(options.ranks >= 1, "ranks must be at least 1, got ", options.ranks);
  CS_REQUIRE(options.threads >= 0, "threads must be at least 0, got ", options.threads);
  CS_REQUIRE(options.timeout.count() >= 0, "timeout must be at least 0, got ",
             options.timeout.count(), " ms");
  WorldOptions settled = options;
  if (settled.threads == 0) {
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    settled.threads = std::max(1, cores / settled.ranks);
  }
  // Decided once: when the last source of a token goes, it is too late to ask, but not to agree.
  if (!settled.stop.stop_possible()) settled.stop = {};
  return settled;
}

}  // namespace

void start_ranks(const WorldOptions& options, const Program& program,
                 std::vector<boost::asio::any_io_executor> executors,
                 std::function<void(std::exception_ptr)> done) {
  CS_REQUIRE(!executors.empty(), "run_ranks: no executor");
  const auto run =
      std::make_shared<AsioRun>(settled_on_asio(options), program, executors, std::move(done));
  std::vector<std::shared_ptr<AsioRank>> ranks;
  for (int rank = 0; rank < options.ranks; ++rank)
    ranks.push_back(std::make_shared<AsioRank>(
        run, rank, executors[static_cast<std::size_t>(rank) % executors.size()]));
  for (std::shared_ptr<AsioRank>& rank : ranks) {
    Executor& executor = rank->executor();
    boost::asio::post(executor.asio_executor(), [rank = std::move(rank)] { rank->start(); });
  }
}

}  // namespace coshard
