#pragma once
// Executes a plan on this rank: issues its collectives, in order.
#include <memory>

#include <coshard/dtensor/tensor/tensor.h>
#include "dtensor/redistribute/plan.h"

namespace coshard {

struct Issued {
  Tensor result;  // off the tape; possibly in flight, possibly a view of the source
  std::shared_ptr<const Step> last = nullptr;  // whose collective is in flight, if any
  int shards = 1;                              // as PlanOutline
};

// Returns at once: each step is chained to the one before, and the result is left in flight. On a
// device with streams, in compute-stream order. `by_shards`: as RedistributeOptions.
Issued run_plan(const DTensor& source, std::shared_ptr<const RedistributePlan> plan,
                bool by_shards = false);

// Executes one step, which may be destroyed while its result is in flight.
Tensor run_step(const Tensor& x, const Step& step, bool by_shards = false);

// Plans and executes. A rank outside the mesh holds nothing and issues nothing.
Issued issue_to(const Tensor& source, const Layout& target, bool by_shards = false);

// As issue_to, result only. For operators: Replicate -> Partial is allowed (each rank keeps its
// share).
Tensor redistribute_raw(const DTensor& source, const Layout& target, bool by_shards = false);

}  // namespace coshard
