#pragma once
// The world of one rank: who it is, its device, executor, communicator and observers. Created by
// `run` or `run_ranks`, passed down by reference, alive until the program returns. Used on the
// rank's thread.
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/comm/link.h>
#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/launch/failure.h>
#include <coshard/runtime/launch/stop_request.h>
#include <coshard/runtime/observer.h>

namespace coshard {

struct WorldOptions {
  int ranks = 2;
  int threads = 0;  // OpenMP threads per rank; 0: cores / ranks, or / rank_threads, at least 1
  // Ranks share so many threads, rank r on r modulo that, on the cpu; 0: a thread each. One that
  // waits lets the next run, one that computes does not. Handlers of its io_context run between
  // ranks, with none current.
  int rank_threads = 0;
  std::chrono::milliseconds timeout{60'000};  // deadline of every wait of the host; 0: none
  // What the ranks compute on. Of several devices rank r gets number r modulo their count.
  DeviceKind device = DeviceKind::Cpu;
  std::string communicator = "local";  // or "nccl"
  // Of communicator local, on the cpu: each communicator, and with it each mesh dimension, emulates
  // a link of its own per rank, first in, first out. A collective begins when its last rank has
  // issued it and the links are free, and is over at the earliest when latency + algorithmic bytes
  // / rate have passed since (Link). Nothing is slowed down: a rank that computes meanwhile hides
  // it completely. None: a collective is over when its data are there.
  std::optional<Link> link = std::nullopt;
  // Of communicator local, on the cpu: threads "progress 0" and so on, which move what is in flight
  // while all ranks compute. They sleep while nothing is, and end before run_ranks returns. None:
  // it is moved by ranks that wait.
  int progress_threads = 0;
  // A device of the caller's own for each rank (its stream, its allocator: CudaOptions); called on
  // the rank's thread. Null: made from `device`.
  std::function<std::shared_ptr<Device>(int rank)> make_device = nullptr;
  // Asks the program to stop; what it does then is its own affair (World::stop_requested). May be
  // requested on any thread, before the ranks start or while they run. Empty: nobody asks.
  std::stop_token stop = {};
  // Called once, when the run has failed: when the first failure has left its program, not when all
  // ranks have ended. On the thread that called run_ranks, as on_still_running is. Null: nobody is
  // told.
  std::function<void(const Failure&)> on_failure = nullptr;
  // Called when ranks have not ended 1 s after on_failure, then every 2 s, and when `grace` is
  // over. Null: nobody is told.
  std::function<void(const StillRunning&)> on_still_running = nullptr;
  // How long ranks may take to end after a failure, until run() ends the process.
  std::chrono::milliseconds grace{10'000};
};

class World {
 public:
  // `control`: all ranks, on the host, beside `communicator`; null: nobody can ask for a stop.
  World(int rank, WorldOptions options, std::shared_ptr<Device> device,
        std::shared_ptr<Communicator> communicator, Executor& executor,
        std::shared_ptr<Communicator> control = nullptr);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return options_.ranks; }
  const WorldOptions& options() const { return options_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  Executor& executor() const { return executor_; }

  // The communicator of `ranks` (world ranks, each once), whose ranks follow their order. Made
  // once, then shared. Only its members need call it, in the same order among themselves; a rank
  // that is not among them gets null. Error{BadInput} for a rank that is none or comes twice.
  std::shared_ptr<Communicator> group(std::span<const int> ranks, std::string name,
                                      CallSite site = CallSite::current());
  // How many communicators group() has made on this rank.
  std::size_t groups() const { return groups_.size(); }

  // Whether WorldOptions::stop was requested, with the same answer on all ranks, which call this
  // alike (once per step, say). Nobody waits for a rank that is less than one call behind: call k
  // puts one byte on its way and gives what call k-1 found; the first gives false. So the answer is
  // true at the latest at the second call that begins after the request, and then for ever.
  // Observers are not told of it. Fails like a collective.
  Task<bool> stop_requested(CallSite site = CallSite::current());

  // Observers are told of everything else that happens on this rank, in the order they were added.
  void add_observer(Observer* observer);
  void remove_observer(Observer* observer);
  // Never null; forwards to all added observers. `observed()` is false when there are none.
  Observer& observer();
  bool observed() const { return !observers_.empty(); }
  // Path of the module that the observers were told of last and that has not ended; null for none.
  std::shared_ptr<const std::string> module() const;
  // `error` has left the module at `path`, or one inside of it, which has said so before.
  void module_left(std::string_view path, const std::exception_ptr& error);
  // Path of the innermost module that `error` has left; "": none, or it was long ago.
  std::string module_of(const std::exception_ptr& error) const;

  // The world whose program runs on this thread, or null.
  static World* current();

 private:
  class FanOut;
  int rank_;
  WorldOptions options_;
  std::shared_ptr<Device> device_;
  std::shared_ptr<Communicator> communicator_;
  Executor& executor_;
  StopRequest stop_request_;
  std::vector<Observer*> observers_;
  std::vector<std::unique_ptr<Observer>> standing_;  // made by observe_worlds()
  std::shared_ptr<FanOut> fan_out_;
  struct Group {
    std::vector<int> ranks;
    std::shared_ptr<Communicator> communicator;
  };
  std::vector<Group> groups_;
  struct Left {
    std::exception_ptr error;
    std::string module;
  };
  std::vector<Left> left_;  // the last few, oldest first
};

// Gives each world made from now on an observer of its own, for its whole life; `make` is called on
// the rank's thread, null: none. Before any world is made. True.
using ObserverMaker = std::unique_ptr<Observer> (*)(int rank);
bool observe_worlds(ObserverMaker make);

using Program = std::function<Task<void>(World&)>;

// Runs `program` for options.ranks ranks, each on a thread of its own (fewer with rank_threads),
// and returns when all have ended. When one throws, all others end within a second, unless they are
// in code that nobody can interrupt: what they wait for, a peer, a timer or a socket, throws
// PeerFailure, which passes through their coroutines; and the first cause is rethrown. It is the
// error that came first, not one that only tells of it. A rank that ends with Error{Cancelled}
// has not failed: it has left, and ends nobody else. Error{BadInput} for options that make no
// sense.
void run_ranks(const WorldOptions& options, const Program& program);

// run_ranks for a main(): a failure is printed on stderr as one line when it happens ("error: rank
// 1, layers.0.mlp: matmul: …"), whoever has not ended a second later is named every two seconds,
// and after options.grace the process is ended with code 1. Returns the exit code: 0, 2 for
// Error{BadInput}, 1 for anything else that was thrown.
int run(WorldOptions options, const Program& program);
// main() in one line. Reads --ranks N, --threads N, --rank-threads N, --timeout SECONDS, --grace
// SECONDS, --device cpu|cuda, --communicator local|nccl, --link LATENCY,RATE and --progress-threads
// N; other arguments are left alone.
int run(int argc, char** argv, const Program& program);

}  // namespace coshard
