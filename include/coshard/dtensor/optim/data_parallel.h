#pragma once
// Data parallelism: gradients are summed over replicas while backward still runs. Rank's thread.
#include <cstdint>
#include <memory>
#include <vector>

#include <coshard/dtensor/device_mesh.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/tensors.h>

#pragma GCC visibility push(default)
namespace coshard {

class GradientBuckets;

struct DataParallelOptions {
  Reduce reduce = Reduce::Avg;  // or Sum
  // Off: the buckets leave when backward has computed all of them. Always: each leaves as soon as
  // it is complete. Auto: so too, but if the link is known there are so few that their latency
  // costs at most 2 % of its time.
  Overlap overlap = Overlap::Auto;
  std::int64_t bucket_bytes = 0;  // of all but the first, at the least; 0: chosen
};

// Sums (or averages) the gradients of `parameters` over the ranks along dimension `dim` of `mesh`,
// in backward itself (torch's DistributedDataParallel, with gradient_as_bucket_view). Gradients lie
// in buckets of one dtype, in the order in which the first backward completes them: an eighth of
// all or 1 MB, at most 25 MB, the first and the last ones smaller. A bucket is all-reduced in place
// once its last gradient is complete. For parameters as all_reduce_gradients takes them: plain, or
// DTensors on meshes of other dimensions. A gradient on a mesh with that dimension has to be
// Partial there, with the same reduction; it becomes Replicate. Otherwise layouts stay, P(sum) over
// other dimensions too.
//
//   Memory:  one gradient of each parameter, allocated by the first backward and kept. Operators
//            write into it where they can, and the next backward overwrites it: clone a gradient
//            that is to last.
//   Moves:   one all_reduce per bucket in each backward() that reaches a parameter; gradients are
//            in flight afterwards. Optimizer::step and clip_grad_norm await them. The order is that
//            of the tape, so ranks that run the same program issue alike.
//   Hooks:   of a parameter run when its gradient is complete, before it leaves: what they return
//            or set is reduced.
//   Capture: a captured step replays the all_reduces; the first backward must not be captured.
//   Fails:   Error{BadInput}: another reduction; a dimension out of range; no parameters, or one
//            that is no leaf or belongs to another DataParallel. In backward: a gradient that is
//            sharded along the dimension; one that was summed before, without zero_grad since (with
//            Avg only if it is left out now); create_graph; two backwards at once. Ranks that miss
//            different gradients, or reach other parameters, fail at this or the next collective
//            there (Error{CommFailed} on all).
class DataParallel {
 public:
  DataParallel(std::vector<Tensor> parameters, const DeviceMesh& mesh, int dim,
               DataParallelOptions options = {}, CallSite site = CallSite::current());
  // The parameters' gradients stay where they are, and are reduced no more.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Gradient accumulation: while off, backwards only add to the gradients; the next one with it on
  // reduces the sum (torch's no_sync). On all ranks alike.
  void set_requires_gradient_sync(bool on);
  // The bytes of each bucket, in the order in which they leave; empty before the first backward.
  std::vector<std::int64_t> bucket_bytes() const;

 private:
  std::shared_ptr<GradientBuckets> buckets_;  // null: one rank
};

}  // namespace coshard
#pragma GCC visibility pop
