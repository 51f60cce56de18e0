#pragma once
// The one interface through which the library is watched. Counters, traces, the exit table and the
// flight recorder implement it; the library tells and never asks. Calls come on the rank's own
// thread, between `World` creation and its end. Times are steady-clock nanoseconds.
#include <cstdint>
#include <memory>
#include <string_view>

#include <coshard/runtime/call_site.h>
#include <coshard/runtime/dtype.h>

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
  std::uint64_t id = 0;        // unique per rank and process; ties issued to ready
  std::uint64_t sequence = 0;  // position on its communicator; equal on all ranks
  CollectiveKind kind{};
  DType dtype{};
  std::int64_t bytes = 0;         // bytes of the larger of this rank's two buffers
  std::string_view communicator;  // mesh dimension name
  std::string_view label;         // what it is for: "S(0)->R", "optimizer", ...
  CallSite where;                 // the line of the user's program that led to it
  std::string_view link;  // "20us,1GB/s" where its time is that of an emulated link; else empty
};

enum class ComputeClass : std::uint8_t { Gemm, Attention, Other };

class Observer {
 public:
  virtual ~Observer() = default;
  // A step of a redistribute is about to be issued: `step` reads "S(0)->R", this rank will have
  // `bytes` of the result.
  virtual void planned(std::string_view /*step*/, std::int64_t /*bytes*/) {}
  virtual void issued(const CommEvent&, std::int64_t /*now*/) {}
  // The host begins to wait for it; `ready` follows unless the wait fails.
  virtual void awaiting(const CommEvent&) {}
  // The awaiter has it: it blocked the host from `wait_begin` to `now` (0 long when it was ready
  // before). `done` is when the data was complete (<= now).
  virtual void ready(const CommEvent&, std::int64_t /*wait_begin*/, std::int64_t /*done*/,
                     std::int64_t /*now*/) {}
  // One kernel of operator `op` is about to run; `computed` follows, also when it fails.
  virtual void computing(std::string_view /*op*/, ComputeClass) {}
  // One kernel of operator `op` ran on the compute stream.
  virtual void computed(std::string_view /*op*/, ComputeClass, std::int64_t /*begin*/,
                        std::int64_t /*end*/) {}
  // A module's forward; within backward, the part of it that belongs to that forward.
  virtual void module_enter(std::string_view /*path*/) {}
  virtual void module_exit(std::string_view /*path*/) {}
  virtual void backward_enter() {}
  virtual void backward_exit() {}
};

// Where a rank's current observer is found; the World of the rank sets it.
using ObserverSlot = std::shared_ptr<Observer*>;

// steady clock, nanoseconds
std::int64_t now_ns();

// Tells of one kernel: `computing` now, `computed` at its end.
class Computing {
 public:
  Computing(Observer& observer, std::string_view op, ComputeClass what)
      : observer_(observer), op_(op), what_(what), begin_(now_ns()) {
    observer_.computing(op_, what_);
  }
  ~Computing() { observer_.computed(op_, what_, begin_, now_ns()); }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  Observer& observer_;
  std::string_view op_;
  ComputeClass what_;
  std::int64_t begin_;
};

}  // namespace coshard
