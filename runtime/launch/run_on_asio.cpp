#include <coshard/runtime/launch/run_on_asio.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>

#include <coshard/runtime/error.h>
#include "runtime/comm/neighbours.h"
#include "runtime/comm/peer_failure.h"
#include "runtime/control/failure_record.h"
#include "runtime/coro/asio_gate.h"
#include "runtime/launch/rank_directory.h"
#include "runtime/launch/rank_world.h"
#include "runtime/launch/run_state.h"

namespace coshard {
namespace {

const boost::asio::any_io_executor& executor_of(
    int rank, const std::vector<boost::asio::any_io_executor>& executors) {
  return executors[static_cast<std::size_t>(rank) % executors.size()];
}

// State shared by the ranks of one run. Owned by them and by their AsioWatch.
struct AsioRun {
  AsioRun(const WorldOptions& all, Program main,
          const std::vector<boost::asio::any_io_executor>& executors)
      : options(all), program(std::move(main)), directory(make_directory(options)) {
    neighbours.contexts.resize(static_cast<std::size_t>(options.ranks));
    for (const int rank : directory->here())
      neighbours.contexts[static_cast<std::size_t>(rank)] = &executor_of(rank, executors).context();
  }

  const WorldOptions options;
  const Program program;
  Neighbours neighbours;
  std::unique_ptr<RankDirectory> directory;
  ThreadParker clock;  // an AsioWatch sleeps in its timer
  RunState state{*directory, options, clock};
};

// Does on a strand of the first executor what the calling thread of run_ranks does otherwise: it
// calls the hooks of the options, and finally the completion token, when all ranks here and
// elsewhere have ended, or soon after a failure. Until then its pending timer owns it, so that it
// lives and dies with that executor's context.
class AsioWatch : public std::enable_shared_from_this<AsioWatch> {
 public:
  AsioWatch(std::shared_ptr<AsioRun> run, const boost::asio::any_io_executor& target,
            std::function<void(std::exception_ptr)> done)
      : run_(std::move(run)),
        strand_(boost::asio::make_strand(target)),
        timer_(strand_),
        done_(std::move(done)) {}
  ~AsioWatch() { run_->state.on_change(nullptr); }
  AsioWatch(const AsioWatch&) = delete;
  AsioWatch& operator=(const AsioWatch&) = delete;

  void start() {
    wait_until(kNever);
    run_->state.on_change([this, gate = AsioGateService::gate_of(strand_.context())] {
      const AsioGate::Pass pass(*gate);
      if (auto self = pass ? weak_from_this().lock() : nullptr)
        boost::asio::post(strand_, [self = std::move(self)] { self->look(); });
    });
  }

 private:
  using Time = RunState::Time;
  using Timer = boost::asio::steady_timer;
  static constexpr Time kNever = Timer::time_point::max().time_since_epoch();
  static constexpr std::chrono::milliseconds kLookAgain{2};  // for ranks elsewhere

  void look() {
    const std::optional<Time> due = run_->state.look();
    if (!done_) return;
    const Time next = due.value_or(kNever);
    if (!run_->state.over()) return wait_until(next);
    if (!run_->directory->over())
      return wait_until(std::min(next, Time(run_->clock.now()) + kLookAgain));
    timer_.cancel();
    std::exchange(done_, nullptr)(run_->state.error());
  }
  void wait_until(Time due) {
    timer_.expires_at(Timer::time_point(due));
    timer_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->look();
    });
  }

  std::shared_ptr<AsioRun> run_;
  boost::asio::strand<boost::asio::any_io_executor> strand_;
  Timer timer_;
  std::function<void(std::exception_ptr)> done_;  // null: already called
};

// One rank. Owned by the handlers on its strand, where all of it runs.
class AsioRank : public std::enable_shared_from_this<AsioRank> {
 public:
  AsioRank(std::shared_ptr<AsioRun> run, int rank, const boost::asio::any_io_executor& target)
      : run_(std::move(run)), rank_(rank), executor_(target) {
    executor_.context().neighbours = &run_->neighbours;
  }
  ~AsioRank() {
    if (!ended_) {
      const std::string text = str_cat("rank ", rank_, " was destroyed with its io_context");
      run_->state.failed({-1, text}, std::make_exception_ptr(PeerFailure(text)));
    }
    executor_.run_here([this] {
      executor_.unsubscribe_all();
      destroy_program();
      executor_.context().end();
    });
    if (!ended_) end();
  }
  AsioRank(const AsioRank&) = delete;
  AsioRank& operator=(const AsioRank&) = delete;

  Executor& executor() { return executor_; }

  // From now on it can be woken.
  void enlist() {
    executor_.belongs_to(shared_from_this());
    run_->state.begins(rank_, executor_);
  }

  void start() {
    try {
      executor_.run_here([this] {
        make_world();
        task_ = run_->program(*world_);
        CS_REQUIRE(task_, "rank ", rank_, ": the program returned an empty task");
      });
    } catch (...) {
      return finish(std::current_exception());
    }
    executor_.launch(task_.handle(), shared_from_this(),
                     [this](const std::exception_ptr& error) { finish(error); });
  }

 private:
  void make_world() {
    world_ = coshard::make_world(rank_, run_->options, *run_->directory, executor_);
    executor_.on_failing([this](const Executor::Failing* failing) {
      run_->state.failing(failing ? failure(failing->error) : Failure{rank_}, failing);
    });
  }

  Failure failure(const std::exception_ptr& error) const {
    return failure_of(rank_, error, world_ ? world_->module_of(error) : "");
  }

  void finish(const std::exception_ptr& error) {
    executor_.run_here([&] {
      bool has_ended = false;
      try {
        if (error) std::rethrow_exception(error);
        task_.take();
        // Queued work may still fail, and peers may need it; this is the last wait for it.
        world_->device()->synchronize();
        world_->device()->settle();
        has_ended = true;
        world_->require_finished();
      } catch (...) {
        std::exception_ptr left = std::current_exception();
        const Failure told = has_ended || world_ == nullptr ? failure(left) : end_of(*world_, left);
        note_left(left, rank_, "");
        run_->state.failed(told, left);
      }
      destroy_program();
    });
    ended_ = true;
    end();
  }

  void end() {
    run_->directory->leave(rank_);
    run_->state.ends(rank_);
  }

  void destroy_program() {
    executor_.destroy_beside();
    task_ = {};
    world_.reset();
  }

  std::shared_ptr<AsioRun> run_;
  int rank_;
  Executor executor_;
  std::unique_ptr<World> world_;
  Task<void> task_;
  bool ended_ = false;
};

}  // namespace

void start_ranks(const WorldOptions& options, const Program& program,
                 std::vector<boost::asio::any_io_executor> executors,
                 std::function<void(std::exception_ptr)> done) {
  CS_REQUIRE(!executors.empty(), "run_ranks: the list of executors is empty");
  CS_REQUIRE(program, "run_ranks: the program is an empty function");
  CS_REQUIRE(options.rank_threads == 0, "rank_threads ", options.rank_threads,
             ": ranks on a caller's executors run on the threads of these");
  CS_REQUIRE(!options.report_stack_overflow,
             "report_stack_overflow: ranks on a caller's executors run on threads that are not the "
             "library's; handle SIGSEGV there");
  const auto run = reporting_failure(
      [&] { return std::make_shared<AsioRun>(settled(options), program, executors); });
  std::make_shared<AsioWatch>(run, executors.front(), std::move(done))->start();
  std::vector<std::shared_ptr<AsioRank>> ranks;
  for (const int rank : run->directory->here())
    ranks.push_back(std::make_shared<AsioRank>(run, rank, executor_of(rank, executors)));
  for (const std::shared_ptr<AsioRank>& rank : ranks) rank->enlist();
  for (std::shared_ptr<AsioRank>& rank : ranks) {
    Executor& executor = rank->executor();
    boost::asio::post(executor.asio_executor(), [rank = std::move(rank)] { rank->start(); });
  }
}

}  // namespace coshard
