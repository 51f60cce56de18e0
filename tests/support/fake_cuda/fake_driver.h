#pragma once
// A CUDA driver without a GPU, for tests: fills the function table (runtime/device/cuda/api.h) from
// the CPU. Device memory is host memory full of NaN bytes. A stream is a queue whose work runs as
// late as allowed: when the host waits for it, asks about it, or needs memory back; then what it
// depends on runs, and now and then something else, in an order drawn from a seed among all orders
// that streams, events and hardware queues permit. So a missing event wait or a buffer that is
// given back too early shows as a wrong number for some seed; and, in whatever order the two have
// run, as a complaint: what every op reads and writes is known (fake_races.h). Kernels are the
// bodies of the .cu files, thread by thread (emulator.h). Any call can be told to fail, to be slow,
// or to leave work that never ends.
//
// Calls that wait for a device do so as a real driver does: holding its context, which each call
// that queues work there needs (fake_context.cpp). What can then never go on is named after a while
// as a complaint, and the call fails.
//
// What it cannot show: speed, the memory model of a device (its atomics and fences are those of one
// thread), tensor-core instructions, and races between threads of a block other than by the order
// in which they run between two barriers.
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

// What becomes of one call, counted from when the fault is set.
struct Fault {
  std::string call;           // "Malloc", "Launch", "EventRecord", …
  int after = 0;              // so many calls of the name go well first
  int times = 1;              // then so many do not
  int error = 0;              // the status they return; 0: none
  bool stuck = false;         // what they queue never runs
  bool skipped = false;       // they return success and do nothing: shows what a mistake would do
  std::int64_t delay_ns = 0;  // before they do their work
  int device = -1;            // only calls on this device; -1: any
};

class FakeDriver {
 public:
  using Work = std::function<void()>;
  struct Stream;
  struct Op;
  using OpRef = std::shared_ptr<Op>;
  // Work that several streams have a part in: none goes on before all `expected` are there.
  struct Gate {
    std::size_t expected = 0;
    std::vector<OpRef> arrivals;
  };

  struct Op {
    Work work;
    std::vector<OpRef> after;         // besides what is before it in its stream
    std::shared_ptr<Gate> gate;       // null: none
    std::function<bool()> ready;      // null: always
    const void* waits_for = nullptr;  // the flag that `ready` looks at
    const void* writes = nullptr;     // the flag that the work writes
    Stream* stream = nullptr;
    std::uint64_t number = 0;              // in its stream
    std::uint64_t order = 0;               // among the work of all streams
    std::shared_ptr<FakeCapture> capture;  // it is a node of that, and never queued
    std::size_t node = 0;
    bool stuck = false, done = false;
    std::shared_ptr<const FakeClock> host;  // what the host knew to be over when it queued the op
    FakeClock clock;                        // once it runs: what it comes after; then with itself
  };
  struct Stream {
    int device = 0;
    int priority = 0;
    int id = 0;
    int hardware = 0;  // the queue of its device that it shares with other streams
    std::uint64_t next = 1, needed = 0;  // numbers: of the next op; up to which a force asks for
    bool destroyed = false;              // goes when its queue is empty
    std::deque<OpRef> queue;
    std::shared_ptr<FakeCapture> capture;  // what it is given is recorded; null: queued
    std::vector<std::size_t> tail;         // the nodes that the next one comes after
    FakeClock clock;                       // of what has run
  };

  // The driver of the process. Made at the first use; its table is installed by install().
  static FakeDriver& get();
  // Makes coshard's CUDA calls go here. `seed` draws the orders.
  void install(std::uint64_t seed, int devices);

  // --- for tests ---
  void reseed(std::uint64_t seed);
  void set_devices(int count) { devices_ = count; }
  // What CUDA it serves; 0: there is no driver.
  void set_driver_version(int version) { driver_version_ = version; }
  void set_peer_access(bool possible) { peer_access_ = possible; }
  // Whether `device` can reach the memory of `peer`, where peer access is possible at all.
  void set_peer_access(int device, int peer, bool possible);
  // How long a call waits for a device that does nothing before it complains and fails.
  void set_patience(std::chrono::milliseconds limit) { limit_ = limit; }
  // How often a call waits for its device where a driver may or may not do so.
  void set_waiting(double probability) { waiting_ = probability; }
  // As in a new process: no kernel is loaded and no peer access enabled; nobody has used memory.
  void forget();
  // The stream goes on when *flag is not 0; raise() writes it in the order of another stream.
  void park(void* stream, const std::uint32_t* flag);
  void raise(void* stream, std::uint32_t* flag);
  void set_memory_limit(std::size_t bytes) { memory_limit_ = bytes; }
  void set_fault(Fault fault);
  void clear_faults();
  // How often the host called `name`; "" all together.
  std::uint64_t calls(const std::string& name) const;
  // Calls that made, or may have made, the host wait for a device.
  std::uint64_t synchronisations() const;
  void reset_counts();
  // One line for each thing a program must not do (a barrier that not all threads reach, …).
  std::vector<std::string> complaints() const;
  // Those so far, which then count no more: for tests that do what must not be done.
  std::vector<std::string> take_complaints();
  void complain(const std::string& text);
  // Work is never chosen before its time: no extra ops, everything as late as possible.
  void set_eagerness(double probability) { eagerness_ = probability; }

  // --- for the calls (fake_*_calls.cpp, other fake libraries) ---
  std::unique_lock<std::recursive_mutex> lock() const {
    return std::unique_lock<std::recursive_mutex>(mutex_);
  }
  // Counts the call and applies its fault; the status to return, 0 to go on, kSkip to return
  // success at once. The flag stays for the next enqueue of this thread.
  static constexpr int kSkip = -1;
  int enter(const char* call);
  // Takes that flag, for calls that queue their work later, or never return.
  static bool take_stuck();
  Stream& stream(void* handle);
  Stream* make_stream(int device, int priority);
  void destroy(Stream& stream);
  OpRef enqueue(Stream& stream, Work work);
  OpRef enqueue(Stream& stream, Op op);
  // Runs what `op` depends on and itself, as far as that is possible now; true when it is done.
  bool force(const OpRef& op);
  // Runs everything that can run.
  void drain();
  // The stream, once its device's context is free: for each call that queues work. Not under
  // lock().
  Stream& queue_on(void* handle);
  // Waits for all that is queued on the device, or for `op`, holding the device's context. False
  // after a complaint when that cannot end; `call` is what it says. Not under lock().
  bool wait_for_device(int device, const std::string& call);
  bool wait_for(const OpRef& op, const std::string& call);
  // wait_for_device for calls of which it is not documented whether they wait: as drawn.
  bool may_wait_for_device(int device, const std::string& call);
  // True for the first call with this device and key since forget().
  bool first_use(int device, const void* key);
  OpRef last_of(Stream& stream) const;
  // Polling may find work unfinished a few times before it is forced.
  bool patient();
  std::uint64_t draw() { return random_(); }

  // For the work of ops, as it runs: what it does with memory, which must not race with another
  // stream. `what` says who does; of `by`, which has no work of its own (a collective's parts).
  void reads(const char* what, const void* data, std::size_t bytes, const Op* by = nullptr);
  void writes(const char* what, const void* data, std::size_t bytes, const Op* by = nullptr);
  // The host has been told that they are over.
  void observe(const FakeClock& over);
  void observe_device(int device);
  // The memory is another's from now on.
  void renew(const void* data, std::size_t bytes) { races_.forget(data, bytes); }

  void* allocate(std::size_t bytes, bool on_device);
  bool release(void* data);
  bool knows(const void* data) const { return allocation_of(data).serial != 0; }
  // The device or pinned memory that holds this address, and whether it is there still.
  struct Allocation {
    const void* data = nullptr;
    std::uint64_t serial = 0;  // 0: no such memory
    std::size_t bytes = 0;
    int device = -1;  // -1: the host's
  };
  Allocation allocation_of(const void* data) const;
  bool alive(const Allocation& allocation) const;
  // For pools, under the lock: memory of the device that backs them (false: there is not so much
  // left), and its range of addresses.
  bool reserve(std::size_t bytes);
  void unreserve(std::size_t bytes);
  void note_range(const void* data, std::size_t bytes, int device);
  void forget_range(const void* data);
  int device_count() const { return devices_; }
  int driver_version() const { return driver_version_; }
  bool peer_access() const { return peer_access_; }
  bool can_reach(int device, int peer) const;
  // False when it was enabled before.
  bool enable_peer(int device, int peer);
  bool reaches(int device, int peer) const;  // is enabled, or the same
  // Shared memory that blocks of the function may have beyond 48 KiB.
  std::size_t& shared_limit(int device, const void* function);
  std::size_t memory_in_use() const { return in_use_; }
  std::size_t memory_limit() const { return memory_limit_; }
  static int& current_device();

 private:
  FakeDriver();
  void forget_accesses();
  FakeClock reach_of(const Op& op) const;
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
  std::uint64_t next_order_ = 1, progress_ = 0;  // of the latter: ops queued and ops done
  std::map<int, std::thread::id> contexts_;      // of a device: who holds it
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
  bool race_told_ = false;       // one is enough: others follow from it
  const Op* running_ = nullptr;  // whose work it is
  // Of the host as a whole, since what threads tell each other is not seen.
  std::shared_ptr<const FakeClock> host_ = std::make_shared<FakeClock>();
};

}  // namespace coshard::testing
