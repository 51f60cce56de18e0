#pragma once
// The interface through which the library is observed. Counters, traces and the communication
// summary implement it; the library notifies observers and never queries them.
// Called on the rank's own thread, while its World lives. Times are nanoseconds of the rank's
// clock: the steady clock, or virtual time in a simulation.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {

enum class CollectiveKind : std::uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Scatter,
  Barrier,
  Send,
  Recv,
};
std::string_view to_string(CollectiveKind kind);  // "all_reduce", ...

struct CommEvent {
  std::uint64_t id = 0;        // unique per rank and process; links issued to ready
  std::uint64_t sequence = 0;  // position on its communicator; equal on all ranks
  CollectiveKind kind{};
  DType dtype{};
  std::int64_t bytes = 0;         // bytes of the larger of this rank's two buffers
  std::string_view communicator;  // mesh dimension name
  std::string_view label;         // what it is for: "S(0)->R", "optimizer", ...
  CallSite where;                 // the user's call site that led to it
  std::string_view link;  // "20us,1GB/s" where its time is that of an emulated link; else empty
  bool queued = false;    // on a device that queues its work: `ran` and `stalled` give its times
};

enum class ComputeClass : std::uint8_t { Gemm, Attention, Other };

// Describes the inputs of a kernel, "f32[8,512] f32[512,256]": for observers that need the text.
using DescribeInputs = std::function<std::string()>;

class Observer {
 public:
  virtual ~Observer() = default;
  // A step of a redistribute is about to be issued: `step` reads "S(0)->R"; `bytes` is the size of
  // this rank's result.
  virtual void planned(std::string_view /*step*/, std::int64_t /*bytes*/) {}
  virtual void issued(const CommEvent&, std::int64_t /*now*/) {}
  // The host stands still from now on, since it needs it or a part of it and no coroutine of the
  // rank can run; `stalled` or `ready` follows: `stalled` if the wait fails or is given up.
  virtual void awaiting(const CommEvent&) {}
  // The awaiter has the result. The host stood still for it from `wait_begin` to `now` (no time if
  // it was complete before, or the rank ran meanwhile), and in the times that `stalled` has told.
  // `done`: when the data were complete (<= now).
  virtual void ready(const CommEvent&, std::int64_t /*wait_begin*/, std::int64_t /*done*/,
                     std::int64_t /*now*/) {}
  // One kernel of operator `op` is about to run; `computed` follows, also when it fails.
  virtual void computing(std::string_view /*op*/, ComputeClass, const DescribeInputs&) {}
  // One kernel of operator `op` ran on the compute stream, or the host has queued it there.
  virtual void computed(std::string_view /*op*/, ComputeClass, std::int64_t /*begin*/,
                        std::int64_t /*end*/) {}
  // The host stood still for it from `begin` to `end`; then a part of it was there, another
  // coroutine of the rank ran, or the await was given up or failed. Comes before `ready`. On a
  // device that queues its work, the compute stream stood still, from where it needed the
  // collective or a part of it to the end of that (no time if that had ended before); comes before
  // `ran`.
  virtual void stalled(const CommEvent&, std::int64_t /*begin*/, std::int64_t /*end*/) {}
  // The rest is of devices that queue their work, where the times above, but for `stalled`, are
  // those of the host. Each is called once the device is past `end`, as `stalled` is there: within
  // Device::synchronize() at the latest.
  // A collective that was awaited was on its stream from `begin`, where this rank's compute stream
  // and earlier collectives let it begin and wait for peers, to `end`; after `ready`.
  virtual void ran(const CommEvent&, std::int64_t /*begin*/, std::int64_t /*end*/) {}
  // Whether kernels are timed, too: two events each.
  virtual bool times_kernels() const { return false; }
  // The kernel of the last `computed` gets this number, and `kernel_ran` will tell its times.
  virtual void queued(std::uint64_t /*kernel*/) {}
  virtual void kernel_ran(std::uint64_t /*kernel*/, std::int64_t /*begin*/, std::int64_t /*end*/) {}
  // A module's forward; in backward, the part that belongs to that forward.
  virtual void module_enter(std::string_view /*path*/) {}
  virtual void module_exit(std::string_view /*path*/) {}
  virtual void backward_enter() {}
  virtual void backward_exit() {}
  // A named range of the program (trace_range.h): a step, an optimizer.
  virtual void range_enter(std::string_view /*name*/) {}
  virtual void range_exit(std::string_view /*name*/) {}
};

// Where a rank's current observer is found; set by its World.
using ObserverSlot = std::shared_ptr<Observer*>;

// steady clock, nanoseconds
std::int64_t now_ns();
// The clock of the calling rank, by which observers are told: virtual in a simulation.
std::int64_t rank_now_ns();

class Device;
class Event;

// Reports one kernel on the device's compute stream: `computing` now, `computed` at its end.
class Computing {
 public:
  Computing(Observer& observer, Device& device, std::string_view op, ComputeClass what,
            const DescribeInputs& inputs);
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  Observer& observer_;
  Device& device_;
  std::string_view op_;
  ComputeClass what_;
  std::int64_t begin_ = 0;
  std::shared_ptr<Event> from_;  // on a device that queues its work, if the kernel is timed
};

}  // namespace coshard
#pragma GCC visibility pop
