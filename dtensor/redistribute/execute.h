#pragma once
// Runs a plan on this rank's part: issues its collectives, in order.
#include "dtensor/redistribute/plan.h"
#include "dtensor/tensor.h"

namespace coshard {

struct Issued {
  Tensor result;               // off the tape; possibly in flight, possibly a view of the source
  const Step* last = nullptr;  // the step whose collective is in flight, if any
};

// A step that needs the result of the one before waits for it; the last one is left in flight.
// Fails: Error{CommFailed|Timeout}.
Issued run_plan(const DTensor& source, const RedistributePlan& plan);

// One step. A step that communicates must outlive its result's being waited for.
Tensor run_step(const Tensor& x, const Step& step);

// This rank's elements in another dtype; layout and logical shape stay. Off the tape.
Tensor cast_local(const Tensor& tensor, DType dtype);

}  // namespace coshard
