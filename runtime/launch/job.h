#pragma once
// The processes that a launcher has started together: MPI between them, their identities, and which
// of them are alive. One per process, created by its first run; ends with the program. Thread-safe.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/mpi/mpi_engine.h"
#include "runtime/comm/mpi/notice.h"
#include "runtime/control/liveness.h"
#include "runtime/launch/launcher.h"
#include "runtime/launch/store.h"

namespace coshard {

class Job {
 public:
  // Created by the first call, which returns when all processes have announced themselves.
  // Error{CommFailed} names the processes that have not within `deadline` (0: none).
  // Error{BadInput}: MPI's size or rank differs from the launcher's.
  static Job& current(const Launched& launched, std::chrono::milliseconds deadline);

  // `store`: for a job without MPI; `api` is then Store::api().
  Job(const MpiApi& api, const Launched& launched, std::chrono::milliseconds deadline,
      std::unique_ptr<Store> store = nullptr);
  // With a running engine, possibly left by a Job whose construction failed: messages that arrived
  // too late for that Job are received.
  Job(std::shared_ptr<MpiEngine> engine, const Launched& launched,
      std::chrono::milliseconds deadline, std::unique_ptr<Store> store = nullptr);
  // Waits until all processes end as well, unless the job was given up.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const std::shared_ptr<MpiEngine>& engine() const { return engine_; }
  Liveness& liveness() { return *liveness_; }
  int processes() const { return static_cast<int>(table_.size()); }
  // Whether all processes run on the same host.
  bool on_one_host() const;
  // The host of each process, numbered in the order of their first processes.
  std::vector<int> hosts() const;
  // How many processes with lower numbers run on the host of this one.
  int before_on_this_host() const;
  // "process 1 (pid 4711 on node1)"
  std::string text(int process) const;
  // Each run has the next number, in every process.
  std::uint64_t next_run() { return ++runs_; }
  // Held by a run until it has ended in all processes; null: another run holds it.
  using Turn = std::shared_ptr<void>;
  Turn take_turn() {
    if (is_taken_.exchange(true)) return nullptr;
    return {&is_taken_, [](std::atomic<bool>* taken) { taken->store(false); }};
  }
  bool is_latest(std::uint64_t run) const { return runs_ == run; }
  // Held while a run starts or stops listening to other processes.
  std::mutex& handing_over() { return handing_over_; }
  // All ranks of this process have ended `run`.
  void note_ended(std::uint64_t run) {
    if (run > ended_runs_) ended_runs_ = run;
  }
  // After a run that failed: returns once all processes have called this and nothing of that run is
  // in flight between them, so that the next one can begin. Error{CommFailed}:
  // a process has died, ended or not called it within `deadline` (0: none), or a transfer in flight
  // cannot be ended; the other processes then get an error that names this one, and the job has to
  // be restarted.
  void begin_again(std::chrono::milliseconds deadline);
  // What other processes have said to the next run, in begin_again().
  std::vector<std::pair<int, std::string>> take_unheard() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(unheard_, {});
  }
  // Poison for a run that this process has not begun, from a process that is ahead; kept in order
  // of arrival.
  void keep(const PoisonNotice& poison);
  std::vector<PoisonNotice> kept_poisons(std::uint64_t run) const;
  // Warns of a connected but silent process. `who`: as from text(), or with its ranks.
  static void warn_of_silence(const std::string& who, std::chrono::milliseconds since);
  // If `text` is another process's notice that it ends, begins again or cannot, records that and
  // returns true.
  bool heard(int from, const std::string& text);
  // How a process ended that has not completed `run`: "has ended with exit code 7 after ..."; none:
  // not known to have.
  std::optional<std::string> ended_before(int process, std::uint64_t run) const;

 private:
  struct End {
    std::string how;                    // "has ended with exit code 7 after 2 runs"
    std::optional<std::uint64_t> runs;  // none: it gave up
  };
  // What a process says to the others after a run that failed.
  static constexpr std::string_view kBegins = "begins ", kCannot = "cannot run again: ";
  [[noreturn]] void refuse_to_begin(const std::string& why, bool of_peer);
  void await_renewal(std::chrono::milliseconds deadline, const std::function<bool()>& over,
                     const std::function<std::string()>& missing);
  std::string end_of_any() const;
  void listen_between_runs();
  void drop_notices_before(std::uint64_t run);
  void await_others();
  void watch_neighbours();
  void meet(std::chrono::milliseconds deadline);
  void meet_all(std::chrono::milliseconds deadline);
  void meet_first(std::chrono::milliseconds deadline);

  const int pid_ = ::getpid();
  std::unique_ptr<Store> store_;  // null: MPI
  std::shared_ptr<MpiEngine> engine_;
  std::vector<HelloNotice> table_;  // by process
  std::shared_ptr<Liveness> liveness_;
  std::atomic<bool> is_taken_{false};
  std::atomic<std::uint64_t> runs_{0}, ended_runs_{0};
  std::mutex handing_over_;
  mutable std::mutex mutex_;             // guards all below
  std::map<int, End> ended_;             // by process
  std::map<int, std::uint64_t> begins_;  // by process: the run that it begins after a failure
  std::vector<std::pair<int, std::string>> unheard_;
  std::vector<PoisonNotice> poisons_;
};

// The paths where the module for this MPI should be, "/a.so or /b.so"; empty: it exists.
std::string missing_mpi_module(const std::string& mpi);

}  // namespace coshard
