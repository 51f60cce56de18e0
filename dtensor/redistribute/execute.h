#pragma once
// Runs a plan on this rank's part: issues its collectives, in order.
#include <functional>

#include <coshard/dtensor/tensor.h>
#include "dtensor/redistribute/plan.h"

namespace coshard {

struct Issued {
  Tensor result;  // off the tape; possibly in flight, possibly a view of the source
  std::shared_ptr<const Step> last = nullptr;  // whose collective is in flight, if any
  int shards = 1;                              // as PlanOutline
};

// Returns at once: a step that needs the result of the one before hangs on it, and the result is
// left in flight. On a device that queues its work that is the order of the compute stream.
Issued run_plan(const DTensor& source, std::shared_ptr<const RedistributePlan> plan);

// A handle to the same memory that waits for nothing.
Tensor place_of(const Tensor& x);

// The same memory, with a flight of its own: in flight on all ranks alike, whatever each of them
// waits for.
Tensor same_in_flight(const Tensor& x, Work work);

// `to`, on a rank that gets no data, is in flight by itself while `from` is.
void fly_with(const Tensor& from, const Tensor& to);

// A deferred redistribute that still fills x is issued: by all ranks, whether or not this one has
// to read x.
void issue_deferred(const Tensor& x);

// One step, which may be forgotten while its result is in flight.
Tensor run_step(const Tensor& x, const Step& step);

// `to` is written by `make`, which reads `from`: now, or once `from` is there; then `to` is in
// flight.
void make_from(const Tensor& from, const Tensor& to, std::function<void(const Tensor& from)> make);

// The transfer of `collective` begins once `from`, which it sends, is there.
void chain(Collective& collective, const Tensor& from);

// As copy_of, which may be in flight.
Tensor copy_later(const Tensor& tensor);

// This rank's elements in another dtype, in flight when those are; layout and logical shape stay.
// Off the tape.
Tensor cast_local(const Tensor& tensor, DType dtype);

}  // namespace coshard
