#pragma once
// All MPI traffic of this process: short messages between processes (notices), and blocks of data.
// One per process and run; thread-safe. Waiting threads drive it; no thread blocks in MPI.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <coshard/runtime/observer.h>
#include "runtime/comm/mpi/mpi_api.h"

namespace coshard {

// Who keeps the memory of a block valid until it has been moved; null: the caller.
struct MpiMemory {
  std::shared_ptr<const void> owner = nullptr;
  bool is_tensor = false;  // others may own it too, and use it after the run
  bool is_lent = false;    // by the program, which keeps it valid during the run
};

class MpiEngine {
 public:
  using Bytes = std::vector<std::byte>;
  // Called for each notice, in the order in which `from` sent them. False: not for this handler;
  // the notice is kept for the next one.
  using OnNotice = std::function<bool(int from, std::span<const std::byte> notice)>;

  // Starts MPI. Error{CommFailed}: it cannot be started. `clock`: which tells whether data move
  // slowly or steadily; on any thread, also while the process exits.
  explicit MpiEngine(const MpiApi& api, std::int64_t (*clock)() = now_ns);
  ~MpiEngine() { stop(); }
  // Drains pending messages for at most a second, then stops MPI, which waits for all processes.
  // False: MPI was not stopped, because of give_up() or messages in flight. Remaining owners of the
  // engine, for example a tensor that outlives the runs, move no more data.
  bool stop();
  // After stop() has returned false: tells the launcher that this process is about to exit
  // normally.
  void leave() { api_.leave(); }
  // A process that MPI_Finalize would wait for may never come.
  void give_up() { given_up_.store(true); }
  bool given_up() const { return given_up_.load(); }
  // Undoes give_up(), unless halted: a new Job tries again.
  void begin_again() { given_up_.store(halted()); }
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  int process() const { return place_.rank; }
  int processes() const { return place_.size; }
  // Sets the only handler; notices that arrive while there is none are kept for the next. Null:
  // none. Waits while another thread drives.
  void on_notice(OnNotice told);

  // `told` is called once with MPI's error if MPI fails, on the thread that called MPI; no MPI call
  // follows. Null: such calls throw instead. Once this has returned, the previous handler is no
  // longer running; `told` must not call on_broken().
  void on_broken(std::function<void(const std::string& problem)> told) {
    const std::scoped_lock lock(telling_);
    told_broken_ = std::move(told);
    is_to_be_told_.store(told_broken_ != nullptr);
  }

  // Once this has returned, MPI makes no more progress and accesses no memory, until renew().
  void halt();
  // The same, and drops all open operations, which may be the last owners of their waiters.
  void forget();
  bool halted() const { return broken_.load(); }

  // After halt(), once all ranks of the run have ended. Why no other run can follow: MPI's error,
  // or a transfer in flight that must not go on, "a send of 8 bytes to process 1 from ..."; "": one
  // can. Drops all callbacks; memory that the engine owns stays until its transfer is over.
  std::string obstacle();
  // The same number in all processes, for which obstacle() has returned "" in all of them. Ends
  // what is in flight: cancels receives, and takes the messages that nobody has received, up to
  // those that each process sends here. Messages of the next run may follow at once.
  // After MPI's error halted() is true.
  void renew(std::uint64_t run);
  // Makes progress. True: over, and nothing is in flight.
  bool renewed();
  // What renewed() waits for: "a send of 8 bytes to process 1".
  std::string unended();

  // By process: a number that is equal for processes on the same host; until called, all are on
  // one. Before any block is sent: sender and receiver must split it alike.
  void on_hosts(const std::vector<int>& hosts);

  // `told` is called when something comes to be in flight while nothing was, or is now: MPI may
  // need to be driven even to send what is short. On the thread that sends or receives, with a lock
  // held. Null: none. Once this has returned, the previous one is no longer running.
  void on_in_flight(std::function<void()> told);

  // At most kMostNotice bytes.
  void send_notice(int to, Bytes notice);
  // Blocks match by tag, which the sender allocates and announces in a notice.
  int next_tag(int to);
  using Memory = MpiMemory;
  // `over` is called on a thread that drives.
  void send(const void* data, std::size_t bytes, int to, int tag, std::function<void()> over,
            Memory memory = {});
  void receive(void* data, std::size_t bytes, int from, int tag, std::function<void()> over,
               Memory memory = {});

  // Whether a piece of a block was received from or sent to `process` within the last `ns`, or
  // note_moved() was called for it.
  bool data_move(int process, std::int64_t ns) const;
  // A notice from `process` carried data.
  void note_moved(int process);
  // "Slow" is relative to the deadline of waits; 0, the default: nothing is slow.
  void set_deadline(std::int64_t ns) { deadline_ns_.store(ns); }
  // Whether a block, with any process, has been moving for a quarter of the deadline (so over a
  // slow link) and still is.
  bool moves_slowly() const { return within(slow_ns_, deadline_ns_.load()); }
  // Whether data have been moving without a pause for a quarter of the deadline, as short blocks do
  // over a slow link or in a program that never idles, and still are. An eighth of the deadline is
  // a pause: including the beats that notify other processes, this expires within one deadline.
  bool moves_steadily() const { return within(steady_ns_, deadline_ns_.load() / 8); }
  // Any thread. `process` is alive and may be waiting for data: they move slowly somewhere in the
  // job, or steadily in `process`.
  void may_wait(int process) { may_wait_ns_of_[place(process)].store(clock_()); }
  bool lately_may_wait(int process) const {
    return within(may_wait_ns_of_[place(process)], deadline_ns_.load() / 2);
  }

  // Makes progress, unless another thread is doing so; true: an operation completed.
  bool drive();
  // The same for an idle thread: also true for a while after an operation has begun or completed.
  // Yields the core now and then.
  bool drive_while_waiting();
  // Blocks and notices in flight, not counting notices that peers have yet to send.
  int in_flight() const { return in_flight_.load(); }
  bool sends_notices();  // some of them are notices

  static constexpr std::size_t kMostNotice = 64 * 1024;  // fits the table of 400 processes

 private:
  struct Block;
  struct Open {                         // an operation, by its cookie
    std::shared_ptr<Block> block = {};  // a piece of this
    int notice_from = -1;               // receives a notice from that process
    Bytes kept = {};                    // the notice being sent
  };
  static std::size_t place(int process) { return static_cast<std::size_t>(process); }
  bool within(const std::atomic<std::int64_t>& at, std::int64_t ns) const {
    return at.load() > 0 && clock_() - at.load() < ns;
  }
  void expect_notice(int from);
  std::uint64_t add(Open open);
  void count_in(int operations);
  bool check(const char* problem);
  class Calls;
  using Stream = std::tuple<bool, int, int>;  // sends, peer, tag
  void post_next(const std::shared_ptr<Block>& block);
  void begin_posting(const std::shared_ptr<Block>& block);
  void end_posting(const Block& block);
  void note_piece(Block& block);
  void end_piece(const std::shared_ptr<Block>& block);
  void pieces(bool sends, void* data, std::size_t bytes, int peer, int tag,
              std::function<void()> over, Memory memory);
  template <class F>
  void beside_drivers(const F& f);
  std::string obstacle_in(const Block& block) const;
  bool take_unreceived(int from);

  const MpiApi& api_;
  std::int64_t (*const clock_)();
  MpiPlace place_;
  OnNotice told_;                               // used by the driving thread
  std::vector<std::pair<int, Bytes>> unheard_;  // likewise
  std::atomic<bool> driving_{false};            // the thread that set it polls and calls back
  std::mutex mutex_;                            // guards MPI calls, and all below
  std::unordered_map<std::uint64_t, Open> open_;
  std::uint64_t next_cookie_ = 0;
  // Long blocks and those queued behind them: the front one's pieces are being posted.
  std::map<Stream, std::deque<std::shared_ptr<Block>>> posting_;
  std::vector<Bytes> notices_;  // by process: the buffer of its next notice
  std::vector<int> tags_;       // by process: the last one drawn
  std::vector<bool> far_;       // by process: on another host
  bool may_break_pipe_ = false;
  std::vector<std::atomic<std::int64_t>> moved_ns_of_;  // by process: when its last piece completed
  std::vector<std::atomic<std::int64_t>> may_wait_ns_of_;  // by process: last may_wait()
  std::atomic<std::int64_t> deadline_ns_{0}, slow_ns_{0}, steady_ns_{0};  // last moved so
  std::int64_t run_since_ns_ = 0, run_ns_ = 0;  // moves without a pause; driving thread
  std::atomic<int> in_flight_{0};
  std::function<void()> told_in_flight_;   // mutex_
  std::atomic<std::int64_t> moved_ns_{0};  // last begin or completion
  std::atomic<bool> given_up_{false};
  std::string untold_;                        // mutex_; the pending error for told_broken_
  std::string problem_;                       // mutex_; MPI's first error
  enum class Rest { Unknown, Ending, Over };  // messages of an earlier run
  std::vector<Rest> rests_;                   // by process; mutex_
  std::uint64_t renewing_ = 0;                // mutex_; as passed to renew()
  std::mutex telling_;  // guards told_broken_; held during its call, which may take mutex_
  std::function<void(const std::string&)> told_broken_;
  std::atomic<bool> is_to_be_told_{false};  // told_broken_ is set
  std::atomic<bool> broken_{false}, stopped_{false};
};

}  // namespace coshard
