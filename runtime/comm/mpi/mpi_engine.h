#pragma once
// All MPI traffic of this process: short messages between processes (notices), and blocks of data.
// One per process and run; thread-safe. Whoever waits drives it; nobody blocks in MPI.
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

class MpiEngine {
 public:
  using Bytes = std::vector<std::byte>;
  // A notice has arrived from a process, in the order in which that process sent them. False: it is
  // not for this one; it is kept for the next.
  using OnNotice = std::function<bool(int from, std::span<const std::byte> notice)>;

  // Starts MPI. Error{CommFailed}: it cannot be started.
  explicit MpiEngine(const MpiApi& api);
  ~MpiEngine() { stop(); }
  // Sends what is left, for at most a second, then stops MPI, which waits for all processes; false:
  // not after give_up(), or MPI has something in flight. Whoever still has this, by a tensor that
  // outlives the runs, say, moves nothing more.
  bool stop();
  // After that: tells the launcher that this process is about to exit as it should nevertheless.
  void leave() { api_.leave(); }
  // A process that MPI would wait for may never come.
  void give_up() { given_up_.store(true); }
  bool given_up() const { return given_up_.load(); }
  // They are asked once more.
  void begin_again() { given_up_.store(halted()); }
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  int process() const { return place_.rank; }
  int processes() const { return place_.size; }
  // One at a time; those that arrive while there is none are kept for the next. Null: none. Not
  // while another thread drives.
  void on_notice(OnNotice told);

  // MPI has failed, with what it says: called once, on the thread that has called it; no call of MPI
  // follows. Null: such calls throw instead. When it has returned the earlier one is not being called
  // any more; `told` must not call it.
  void on_broken(std::function<void(const std::string& problem)> told) {
    const std::scoped_lock lock(telling_);
    told_broken_ = std::move(told);
    is_to_be_told_.store(told_broken_ != nullptr);
  }

  // When it has returned MPI makes no more progress, and reads and writes no memory. For good.
  void halt();
  // The same, and what is open is dropped, which may be the last owner of whoever waits for it.
  void forget();
  bool halted() const { return broken_.load(); }

  // By process, a number that is equal for processes of one host; until then all are on one. Before
  // any block: sender and receiver cut it alike.
  void on_hosts(const std::vector<int>& hosts);

  // At most kMostNotice bytes.
  void send_notice(int to, Bytes notice);
  // Blocks match by tag, which the sender draws and names in a notice.
  int next_tag(int to);
  // The memory must stay until `over` was called, on a thread that drives.
  void send(const void* data, std::size_t bytes, int to, int tag, std::function<void()> over);
  void receive(void* data, std::size_t bytes, int from, int tag, std::function<void()> over);

  // Whether a piece of a block has come from there or gone there within the last `ns`, or a notice
  // that note_moved() was told of.
  bool data_move(int process, std::int64_t ns) const;
  // A notice has brought data from there.
  void note_moved(int process);
  // What is slow is measured by the deadline of those who wait; 0, as at first: nothing is.
  void set_deadline(std::int64_t ns) { deadline_ns_.store(ns); }
  // Whether a block that has been moving for a quarter of the deadline, so over a slow link, still
  // moves, with whomever.
  bool moves_slowly() const { return within(slow_ns_, deadline_ns_.load()); }
  // Whether short blocks have come and gone for a quarter of the deadline without a pause, as they
  // do over a slow link, and in a program that never rests, and still do. An eighth is a pause: with the beats that tell others, and
  // what they make of it, all is forgotten within a deadline.
  bool moves_steadily() const { return within(steady_ns_, deadline_ns_.load() / 8); }
  // Any thread. Something in the job moves slowly, and `process` lives, or it moves data steadily
  // itself: it may wait for that.
  void may_wait(int process) { may_wait_ns_of_[place(process)].store(now_ns()); }
  bool lately_may_wait(int process) const {
    return within(may_wait_ns_of_[place(process)], deadline_ns_.load() / 2);
  }

  // Makes progress, unless another thread does; true: something is over.
  bool drive();
  // The same for a thread that has nothing else to do: true also for a while after something has
  // begun or is over. Yields the core now and then.
  bool drive_while_waiting();
  // Blocks and notices that are on their way, notices not yet sent by peers apart.
  int in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

  static constexpr std::size_t kMostNotice = 64 * 1024;  // the table of 400 processes and more

 private:
  struct Open {  // what a cookie stands for
    std::function<void()> over;
    int notice_from = -1;  // a notice that arrives from there
    Bytes kept;            // a notice that is sent
  };
  static std::size_t place(int process) { return static_cast<std::size_t>(process); }
  static bool within(const std::atomic<std::int64_t>& at, std::int64_t ns) {
    return at.load() > 0 && now_ns() - at.load() < ns;
  }
  void expect_notice(int from);
  std::uint64_t add(Open open);
  bool check(const char* problem);
  class Calls;
  struct Block;
  using Stream = std::tuple<bool, int, int>;  // sends, peer, tag
  void post_next(const std::shared_ptr<Block>& block);
  void begin_posting(const std::shared_ptr<Block>& block);
  void end_posting(const Block& block);
  void note_piece(Block& block);
  void pieces(bool sends, void* data, std::size_t bytes, int peer, int tag,
              std::function<void()> over);

  const MpiApi& api_;
  MpiPlace place_;
  OnNotice told_;                               // used by who drives
  std::vector<std::pair<int, Bytes>> unheard_;  // likewise
  std::atomic<bool> driving_{false};            // who has set it polls and calls back
  std::mutex mutex_;                            // calls of MPI, and all below
  std::unordered_map<std::uint64_t, Open> open_;
  std::uint64_t next_cookie_ = 0;
  // Of long blocks, and those behind them: whose pieces are being posted, then who waits for that.
  std::map<Stream, std::deque<std::shared_ptr<Block>>> posting_;
  std::vector<Bytes> notices_;  // by process: where its next one arrives
  std::vector<int> tags_;       // by process: the last one drawn
  std::vector<bool> far_;       // by process: is on another host
  bool may_break_pipe_ = false;
  std::vector<std::atomic<std::int64_t>> moved_ns_of_;  // by process: when its last piece was over
  std::vector<std::atomic<std::int64_t>> may_wait_ns_of_;  // by process: when it last was so
  std::atomic<std::int64_t> deadline_ns_{0}, slow_ns_{0}, steady_ns_{0};  // last moved so
  std::int64_t run_since_ns_ = 0, run_ns_ = 0;  // moves without a pause; of who drives
  std::atomic<int> in_flight_{0};
  std::atomic<std::int64_t> moved_ns_{0};  // when something has last begun, or was over
  std::atomic<bool> given_up_{false};
  std::string untold_;  // of mutex_: what told_broken_ is to be called with
  std::mutex telling_;  // the one below; held while it runs, which may take mutex_
  std::function<void(const std::string&)> told_broken_;
  std::atomic<bool> is_to_be_told_{false};  // there is one
  std::atomic<bool> broken_{false}, stopped_{false};
};

}  // namespace coshard
