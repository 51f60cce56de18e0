#pragma once
// Executes a plan on this rank: issues its collectives, in order.
#include <functional>

#include <coshard/dtensor/tensor.h>
#include "dtensor/redistribute/plan.h"

namespace coshard {

struct Issued {
  Tensor result;  // off the tape; possibly in flight, possibly a view of the source
  std::shared_ptr<const Step> last = nullptr;  // whose collective is in flight, if any
  int shards = 1;                              // as PlanOutline
};

// Returns at once: each step is chained to the one before, and the result is left in flight. On a
// device with streams, in compute-stream order.
Issued run_plan(const DTensor& source, std::shared_ptr<const RedistributePlan> plan);

// A handle to the same memory that does not wait.
Tensor place_of(const Tensor& x);

// The same memory, separately in flight: on all ranks alike, whatever each of them waits for.
Tensor same_in_flight(const Tensor& x, Work work);

// For a rank that receives no data: `to` is in flight while `from` is.
void fly_with(const Tensor& from, const Tensor& to);

// If a deferred redistribute will fill x, it is issued now: by all ranks, whether or not this one
// reads x.
void issue_deferred(const Tensor& x);

// Executes one step, which may be destroyed while its result is in flight.
Tensor run_step(const Tensor& x, const Step& step);

// `make` writes `to` from `from`: now, or once `from` has arrived; until then `to` is in flight.
void make_from(const Tensor& from, const Tensor& to, std::function<void(const Tensor& from)> make);

// The transfer of `collective` begins once `from`, which it sends, has arrived.
void chain(Collective& collective, const Tensor& from);

// As copy_of, for a tensor that may be in flight.
Tensor copy_later(const Tensor& tensor);

// The local tensor cast to another dtype, in flight if it is; layout and logical shape stay. Off
// the tape.
Tensor cast_local(const Tensor& tensor, DType dtype);

}  // namespace coshard
