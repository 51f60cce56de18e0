#pragma once
// The world of one rank: its rank, device, executor, communicator and observers. Created by `run`
// or `run_ranks`, passed down by reference, alive until the program returns. Rank's thread.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/coro/executor.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/launch/failure.h>
#include <coshard/runtime/launch/stop_request.h>
#include <coshard/runtime/observer.h>

#pragma GCC visibility push(default)
namespace coshard {

struct WorldOptions {
  // Ranks of all processes together, the same number in each. 0: one per process where a launcher
  // (mpirun, srun) has started several, else 2. World::options() has the number that applies.
  int ranks = 0;
  // OpenMP threads per rank; 0: cores of the machine / ranks on it, or / rank_threads, at least 1.
  int threads = 0;
  // Ranks share this many threads (rank r runs on thread r modulo that), on the CPU only; 0: one
  // thread each. A rank that waits lets the next one run; one that computes does not. io_context
  // handlers run between ranks, with none current.
  int rank_threads = 0;
  // The stack of each rank that is a fiber: with rank_threads, and in a simulation. Only what is
  // touched takes memory. At least 256 KiB; the stack of a rank with its own thread is the
  // system's (ulimit -s). An await that leaves less than 64 KiB of a stack is Error{BadInput}.
  std::size_t stack_bytes = std::size_t{8} << 20;
  // Whether a rank that overflows its stack is named on stderr before the signal ends the process:
  // run_ranks and simulate then handle SIGSEGV, on a stack of its own, and hand it on.
  bool report_stack_overflow = false;
  std::chrono::milliseconds timeout{60'000};  // deadline of every host wait; 0: none
  // What the ranks compute on. Rank r of a host gets device r modulo the number of devices.
  DeviceKind device = DeviceKind::Cpu;
  std::string communicator = "local";  // or "nccl"
  // For communicator local on the CPU: every communicator, and so every mesh dimension, emulates
  // its own FIFO link per rank. A collective starts once its last rank has issued it and the links
  // are free, and completes no earlier than latency + algorithmic bytes / rate later (Link).
  // Nothing is slowed down: a rank that computes meanwhile hides all of it. nullopt: a collective
  // completes when its data have arrived.
  std::optional<Link> link = std::nullopt;
  // For communicator local on the CPU: threads named "progress 0", …, which move data in flight
  // while ranks compute. They sleep when idle and end before run_ranks returns. 0: waiting ranks
  // move the data.
  int progress_threads = 0;
  // The caller's own device for each rank (its stream, its allocator: CudaOptions); called on the
  // rank's thread. Null: created from `device`.
  std::function<std::shared_ptr<Device>(int rank)> make_device = nullptr;
  // Asks the program to stop; how it reacts is up to the program (World::stop_requested). May be
  // requested on any thread, before the ranks start or while they run. Empty: never.
  std::stop_token stop = {};
  // Called once if the run fails, as soon as the first failure has left its program, without
  // waiting for other ranks to end. On the thread that called run_ranks, as is on_still_running.
  // Null: not called.
  std::function<void(const Failure&)> on_failure = nullptr;
  // Called if ranks have not ended 1 s after on_failure, then every 2 s, and when `grace` is over.
  // Null: not called.
  std::function<void(const StillRunning&)> on_still_running = nullptr;
  // How long ranks may take to end after a failure before run() ends the process.
  std::chrono::milliseconds grace{10'000};
};

class World {
 public:
  // `control`: a second communicator of all ranks, on the host; null: no stop can be requested.
  // `host`: one that makes others on the host; null: `communicator` does.
  World(int rank, WorldOptions options, std::shared_ptr<Device> device,
        std::shared_ptr<Communicator> communicator, Executor& executor,
        std::shared_ptr<Communicator> control = nullptr,
        std::shared_ptr<Communicator> host = nullptr);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return options_.ranks; }
  const WorldOptions& options() const { return options_; }
  const std::shared_ptr<Device>& device() const { return device_; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }
  Executor& executor() const { return executor_; }

  // The communicator of `ranks` (world ranks, each once, in the given order). Created once, then
  // shared. Only its members need to call it, in the same order among themselves; other ranks get
  // null. Error{BadInput} for a rank out of range or listed twice.
  std::shared_ptr<Communicator> group(std::span<const int> ranks, std::string name,
                                      CallSite site = CallSite::current());
  // A communicator of all ranks that moves host memory on every device, for what is no tensor, such
  // as parts of files. Its collectives have an order of their own. Created by the first call.
  Communicator& files();
  // How many communicators group() has made on this rank.
  std::size_t groups() const { return groups_.size(); }

  // Whether WorldOptions::stop was requested, with the same answer on all ranks, which must all
  // call it (once per step, say). No rank waits for one that is less than one call behind: call k
  // sends one byte and returns the result of call k-1; the first returns false. So it returns true
  // at the latest in the second call that begins after the request, and from then on. Hidden from
  // observers. Fails like a collective.
  Task<bool> stop_requested(CallSite site = CallSite::current());

  // Observers are notified of everything on this rank that is not hidden, in the order in which
  // they were added.
  void add_observer(Observer* observer);
  void remove_observer(Observer* observer);
  // Never null; forwards to all added observers. `observed()` is false if there are none.
  Observer& observer();
  bool observed() const { return !observers_.empty(); }
  // What the program must not leave behind: it fails with Error{BadInput}, `text`, if it ends before
  // finished() gets what this returned, a number of its own.
  std::uint64_t must_finish(std::string text);
  void finished(std::uint64_t what) noexcept;
  // Throws that; nothing is left: returns. At the end of the program.
  void require_finished() const;
  // Path of the module entered last and not yet left; null: none.
  std::shared_ptr<const std::string> module() const;
  // `error` has left the module at `path`; modules inside it have reported it before.
  void module_left(std::string_view path, const std::exception_ptr& error);
  // Path of the innermost module that `error` has left; "": none, or too long ago.
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
  std::shared_ptr<Communicator> host_, files_;  // files_: null until it is asked for
  std::map<std::uint64_t, std::string> unfinished_;
  std::uint64_t must_finish_ = 0;  // how often that was said
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

// Gives each world created from now on its own observer for its whole life; `make` is called on the
// rank's thread and may return null. Call it before any world is created; returns true.
using ObserverMaker = std::unique_ptr<Observer> (*)(int rank);
bool observe_worlds(ObserverMaker make);

using Program = std::function<Task<void>(World&)>;

// Runs `program` for options.ranks ranks, each on its own thread (fewer with rank_threads), and
// returns when all have ended. If one throws, the others end within a second unless they are in
// code that cannot be interrupted: whatever they wait for, a peer, a timer or a socket, throws
// PeerFailure, which unwinds their coroutines. The original error is then rethrown, not one that
// only reports it. A rank that ends with Error{Cancelled} has exited rather than failed, and does
// not end the others. It can be called again after a failure. Error{BadInput} for invalid options.
void run_ranks(const WorldOptions& options, const Program& program);

// run_ranks for a main(): a failure is printed to stderr as one line when it happens ("error: rank
// 1, layers.0.mlp: matmul: …"); ranks that have not ended a second later are listed every two
// seconds, and after options.grace the process is ended with code 1. Returns the exit code: 0, 2
// for Error{BadInput}, 1 for any other exception.
int run(WorldOptions options, const Program& program);
// main() in one line. Reads --ranks N, --threads N, --rank-threads N, --timeout SECONDS, --grace
// SECONDS, --device NAME, --communicator NAME, --link LATENCY,RATE and --progress-threads N. --help
// and --version are answered with code 0; any other argument before "--" is an error of one line
// and code 2. A program with arguments of its own uses take_world_options.
int run(int argc, char** argv, const Program& program);

}  // namespace coshard
#pragma GCC visibility pop
