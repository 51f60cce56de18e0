#pragma once
// A CUDA driver without a GPU, for tests: fills the function table (runtime/device/cuda/api.h) from
// the CPU. Device memory is host memory full of NaN bytes. A stream is a queue whose work runs as
// late as allowed: when the host waits for it, queries it, or needs memory back; then its
// dependencies run, and occasionally other work, in an order drawn from a seed among all orders
// that streams, events and hardware queues permit. So a missing event wait or a buffer that is
// freed too early shows as a wrong number for some seed and, whatever the order, as a complaint:
// the driver tracks what every op reads and writes (fake_races.h). Kernels are the bodies of the
// .cu files, thread by thread (emulator.h). Any call can be made to fail, to be slow, or to queue
// work that never ends.
//
// Calls that wait for a device do so as in a real driver: holding its context, which each call that
// queues work there needs (fake_context.cpp). A resulting deadlock is reported as a complaint after
// a timeout, and the call fails.
//
// It does not model speed, a device's memory model (atomics and fences are those of one thread),
// tensor-core instructions, or races between threads of a block, except through the order in which
// they run between two barriers.
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_races.h"

namespace coshard::testing {

struct FakeCapture;  // fake_graphs.h

// A fault of calls of one name, which are counted from when the fault is set.
struct Fault {
  std::string call;           // "Malloc", "Launch", "EventRecord", …
  int after = 0;              // so many calls succeed first
  int times = 1;              // then so many are affected
  int error = 0;              // the status they return; 0: none
  bool stuck = false;         // the work they queue never runs
  bool skipped = false;       // they return success and do nothing, as if they were missing
  std::int64_t delay_ns = 0;  // before they do their work
  int device = -1;            // only calls on this device; -1: any
};

class FakeDriver {
 public:
  using Work = std::function<void()>;
  struct Stream;
  struct Op;
  using OpRef = std::shared_ptr<Op>;
  // Work in which several streams take part: none continues before all `expected` have arrived.
  struct Gate {
    std::size_t expected = 0;
    std::vector<OpRef> arrivals;
  };

  // A collective of one rank each, or a message: none ends before all have begun.
  struct Meeting {
    std::uint64_t id = 0;
    std::size_t ranks = 0;
  };

  struct Op {
    Work work;
    std::vector<OpRef> after;         // in addition to its predecessors in the stream
    std::vector<OpRef> after_launch;  // these must have begun: launch completion events
    std::vector<Meeting> meetings;    // it waits on the device for its peers
    bool kernel = false;              // it needs multiprocessors
    std::shared_ptr<Gate> gate;       // null: none
    std::function<bool()> ready;      // null: always
    const void* waits_for = nullptr;  // the flag that `ready` reads
    const void* writes = nullptr;     // the flag that the work writes
    Stream* stream = nullptr;
    std::uint64_t number = 0;              // in its stream
    std::uint64_t order = 0;               // among the work of all streams
    std::shared_ptr<FakeCapture> capture;  // it is a node of this capture, and never queued
    std::size_t node = 0;
    bool stuck = false, done = false;
    std::int64_t done_ns = 0;               // when it was, for events with timing
    std::shared_ptr<const FakeClock> host;  // what the host had seen complete when it queued the op
    FakeClock clock;  // while it runs: what it comes after; then including itself
  };
  struct Stream {
    int device = 0;
    int priority = 0;
    int id = 0;
    int hardware = 0;  // the queue of its device that it shares with other streams
    std::uint64_t next = 1, needed = 0;  // number of the next op; up to which force() needs ops
    bool destroyed = false;              // deleted once its queue is empty
    std::deque<OpRef> queue;
    std::shared_ptr<FakeCapture> capture;  // its work is recorded there; null: queued
    std::vector<std::size_t> tail;         // the nodes that precede the next one
    FakeClock clock;                       // of what has run
  };

  // The driver of the process. Made at the first use; its table is installed by install().
  static FakeDriver& get();
  // Redirects coshard's CUDA calls here. `seed` determines the orders.
  void install(std::uint64_t seed, int devices);

  // --- for tests ---
  void reseed(std::uint64_t seed);
  void set_devices(int count) { devices_ = count; }
  // The CUDA version it supports; 0: there is no driver.
  void set_driver_version(int version) { driver_version_ = version; }
  void set_peer_access(bool possible) { peer_access_ = possible; }
  // Whether `device` can reach the memory of `peer`, where peer access is possible at all.
  void set_peer_access(int device, int peer, bool possible);
  // How long a call waits for a device without progress before it complains and fails.
  void set_patience(std::chrono::milliseconds limit) { limit_ = limit; }
  // The probability that a call waits for its device if a driver may or may not do so.
  void set_waiting(double probability) { waiting_ = probability; }
  // As in a new process: no kernel is loaded, no peer access enabled, no memory access recorded.
  void forget();
  // The stream continues once *flag is not 0; raise() sets it in the order of another stream.
  void park(void* stream, const std::uint32_t* flag);
  void raise(void* stream, std::uint32_t* flag);
  void set_memory_limit(std::size_t bytes) { memory_limit_ = bytes; }
  void set_fault(Fault fault);
  void clear_faults();
  // How often the host called `name`; "": all calls.
  std::uint64_t calls(const std::string& name) const;
  // Calls that made, or could have made, the host wait for a device.
  std::uint64_t synchronisations() const;
  void reset_counts();
  // One line per violation by the program (a barrier that not all threads reach, …).
  std::vector<std::string> complaints() const;
  // Returns and clears those so far, for tests that violate rules on purpose.
  std::vector<std::string> take_complaints();
  void complain(const std::string& text);
  // An op that accesses memory, by what, and what it came after.
  struct Ran {
    FakeRaces::Access by;
    FakeClock after;
    // Neither precedes the other.
    bool beside(const Ran& other) const {
      return !after.covers(other.by.stream, other.by.number) &&
             !other.after.covers(by.stream, by.number) && !by.same_op(other.by);
    }
  };
  // An op as it was queued, for searches over all schedules (fake_schedules.h). Those before
  // keep_queued() are taken to be complete.
  struct Queued {
    int device = 0, stream = 0;
    bool kernel = false;
    std::vector<Meeting> meetings;
    std::vector<std::size_t> after, after_launch;  // earlier ones, by place
  };
  void keep_queued();
  std::vector<Queued> take_queued();  // since keep_queued(), which ends
  void keep_runs() { keeps_runs_ = true; }
  std::vector<Ran> take_runs();  // since keep_runs(), which ends
  // How often an op runs before it is needed; 0: everything as late as possible.
  void set_eagerness(double probability) { eagerness_ = probability; }

  // --- for the calls (fake_*_calls.cpp, other fake libraries) ---
  std::unique_lock<std::recursive_mutex> lock() const {
    return std::unique_lock<std::recursive_mutex>(mutex_);
  }
  // Counts the call and applies its fault; the status to return, 0 to go on, kSkip to return
  // success at once. `stuck` applies to the next enqueue of this thread.
  static constexpr int kSkip = -1;
  int enter(const char* call);
  // Takes that `stuck`, for calls that queue their work later or never return.
  static bool take_stuck();
  Stream& stream(void* handle);
  Stream* make_stream(int device, int priority);
  void destroy(Stream& stream);
  OpRef enqueue(Stream& stream, Work work);
  OpRef enqueue(Stream& stream, Op op);
  // Runs the dependencies of `op` and itself, as far as possible now; true if it is done.
  bool force(const OpRef& op);
  // Runs everything that can run.
  void drain();
  // The stream, once its device's context is free: for each call that queues work. Not under
  // lock().
  Stream& queue_on(void* handle);
  // Waits for all work queued on the device, or for `op`, holding the device's context. False after
  // a complaint, which names `call`, if that cannot end. Not under lock().
  bool wait_for_device(int device, const std::string& call);
  bool wait_for(const OpRef& op, const std::string& call);
  // wait_for_device at random, for calls of which it is undocumented whether they wait.
  bool may_wait_for_device(int device, const std::string& call);
  // True for the first call with this device and key since forget().
  bool first_use(int device, const void* key);
  OpRef last_of(Stream& stream) const;
  // Polling may find work unfinished a few times before it is forced.
  bool patient();
  std::uint64_t draw() { return random_(); }

  // Called by the work of ops as it runs: memory accesses, which must not race with other streams.
  // `what` names the access; `by`: its op, if that has no work (a collective's parts).
  void reads(const char* what, const void* data, std::size_t bytes, const Op* by = nullptr);
  void writes(const char* what, const void* data, std::size_t bytes, const Op* by = nullptr);
  // The host has seen these complete.
  void observe(const FakeClock& over);
  void observe_device(int device);
  // The memory has a new owner.
  void renew(const void* data, std::size_t bytes) { races_.forget(data, bytes); }

  void* allocate(std::size_t bytes, bool on_device);
  bool release(void* data);
  bool knows(const void* data) const { return allocation_of(data).serial != 0; }
  // The device or pinned allocation at this address, and whether it still exists.
  struct Allocation {
    const void* data = nullptr;
    std::uint64_t serial = 0;  // 0: no such memory
    std::size_t bytes = 0;
    int device = -1;  // -1: the host's
  };
  Allocation allocation_of(const void* data) const;
  bool alive(const Allocation& allocation) const;
  // For pools, under the lock: backing device memory (false: not enough left), and its addresses.
  bool reserve(std::size_t bytes);
  void unreserve(std::size_t bytes);
  void note_range(const void* data, std::size_t bytes, int device);
  void forget_range(const void* data);
  int device_count() const { return devices_; }
  int driver_version() const { return driver_version_; }
  bool peer_access() const { return peer_access_; }
  bool can_reach(int device, int peer) const;
  // False if it is enabled already.
  bool enable_peer(int device, int peer);
  bool reaches(int device, int peer) const;  // enabled, or the same device
  // The opt-in limit of shared memory for blocks of the function.
  std::size_t& shared_limit(int device, const void* function);
  std::size_t memory_in_use() const { return in_use_; }
  std::size_t memory_limit() const { return memory_limit_; }
  static int& current_device();

 private:
  FakeDriver();
  void forget_accesses();
  FakeClock reach_of(const Op& op) const;
  void note_run(const FakeRaces::Access& by);
  void note_queued(const OpRef& op);
  bool begun(const Op& op) const;
  FakeRaces::Access access(const char* what, const Op* by) const;
  bool issuable(const Op& op) const;
  const Stream* blocker_of(const Op& op) const;
  bool runnable(const Op& op) const;
  void need(const Op& op);
  void need_all_before(const Op& op);
  bool step(bool only_needed);
  void await_context(std::unique_lock<std::recursive_mutex>& held, int device);
  bool wait_for_all(std::unique_lock<std::recursive_mutex>& held, int device,
                    const std::vector<OpRef>& ops, const std::string& call);
  std::string cause_of(const Op& op) const;

  mutable std::recursive_mutex mutex_;
  std::condition_variable_any more_;
  std::mt19937_64 random_{1};
  double eagerness_ = 0.15, waiting_ = 0.5;
  std::chrono::milliseconds limit_{20'000};
  int devices_ = 1;
  int driver_version_ = CUDART_VERSION;
  bool peer_access_ = true;
  std::vector<std::unique_ptr<Stream>> streams_;
  int next_stream_ = 0;
  std::uint64_t next_order_ = 1, progress_ = 0;  // progress_: ops queued plus ops done
  std::map<int, std::thread::id> contexts_;      // by device: the thread that holds it
  std::set<std::pair<int, const void*>> used_;
  std::set<std::pair<int, int>> unreachable_, enabled_;
  std::map<std::pair<int, const void*>, std::size_t> shared_limits_;
  std::map<const void*, Allocation> memory_;
  std::uint64_t next_serial_ = 1;
  std::size_t in_use_ = 0, memory_limit_ = std::size_t{8} << 30;
  std::vector<Fault> faults_;
  std::map<std::string, std::uint64_t> counts_;
  std::vector<std::string> complaints_;
  FakeRaces races_;
  std::vector<Ran> runs_;
  bool keeps_runs_ = false, keeps_queued_ = false;
  std::vector<Queued> queued_;
  std::vector<OpRef> queued_ops_;  // so that their addresses stay their own
  std::map<const Op*, std::size_t> queued_at_;
  bool race_told_ = false;       // only the first is reported: others follow from it
  const Op* running_ = nullptr;  // the op whose work is running
  // Of the host as a whole, since synchronization between its threads is not tracked.
  std::shared_ptr<const FakeClock> host_ = std::make_shared<FakeClock>();
};

}  // namespace coshard::testing
