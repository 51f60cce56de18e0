#pragma once
// Data parallelism: gradients are summed over replicas while backward still runs. Rank's thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/tensor/tensors.h>

#pragma GCC visibility push(default)
namespace coshard {

class GradientBuckets;

struct DataParallelOptions {
  Reduce reduce = Reduce::Avg;  // or Sum
  // Off: all buckets are sent when backward has completed the last. Always: each is sent as soon as
  // it is complete. Auto: as Always, but if the link is known, with few enough buckets that their
  // latencies take at most 2 % of the time on the link.
  Overlap overlap = Overlap::Auto;
  // A rank along the dimension, whose parameters the constructor copies to the others, as torch's
  // DistributedDataParallel does from rank 0. Nothing: the first backward compares them.
  std::optional<int> src_data_rank = std::nullopt;
  // Ranks may reach other parameters in a backward, such as experts (torch's option of this name):
  // one that a rank does not reach counts as zeros there, and keeps its gradient where no rank
  // does. Costs an all_reduce of 8 bytes per parameter, which backward awaits; all buckets are
  // sent at the end of backward. Plain parameters only.
  bool find_unused_parameters = false;
  std::int64_t bucket_bytes = 0;  // closes a bucket, the first and last ones earlier; 0: automatic
};

// Sums (or averages) the gradients of `parameters` over the ranks along dimension `dim` of `mesh`,
// in backward itself (torch's DistributedDataParallel, with gradient_as_bucket_view). Gradients are
// stored in buckets of one dtype, the last parameters of the list first, as backward usually
// completes them (the list must be the same on all ranks, the order in which they reach it not):
// the larger of an eighth of all bytes and 1 MB, but at most 25 MB; the first and last buckets are
// smaller. A bucket is all-reduced in place once its last gradient is complete. Parameters are
// those that all_reduce_gradients accepts: plain, or DTensors. A gradient on a mesh with that
// dimension is Partial there, with the same reduction, and becomes Replicate; or it is Replicate,
// the whole value already, and keeps its value. Other layouts are kept, P(sum) over other
// dimensions too.
//
//   Memory:  one gradient of each parameter, allocated by the first backward and kept. Operators
//            write into it where they can, and the next backward overwrites it: clone a gradient to
//            keep it.
//   Start:   all ranks must hold the same parameters. The constructor makes them those of
//            src_data_rank (one broadcast each, waited for); without it, the first backward that
//            reduces compares 8 bytes of each parameter, which travel with its first bucket.
//   Moves:   one all_reduce per bucket in each backward() that reaches a parameter; gradients are
//            in flight afterwards. Optimizer::step and clip_grad_norm await them. The order is that
//            of the tape, so ranks that run the same program issue in the same order.
//   Hooks:   those of a parameter run when its gradient is complete, before it is sent: what they
//            return or set is reduced. A backward within a hook, with gradient sync off, may add
//            to a gradient until its bucket is sent, and fails afterwards: under Overlap::Off all
//            are sent at the end; otherwise the order of the buckets decides.
//   Capture: a captured step replays the all_reduces; the first backward must not be captured.
//   Fails:   Error{BadInput}: another reduction; a dimension out of range; no parameters, or one
//            that is no leaf or belongs to another DataParallel. In backward: a gradient that is
//            sharded along the dimension; one that has been summed already, without zero_grad since
//            (with Avg, only if this backward does not reach it); one whose bucket has been sent
//            (a backward within a hook); create_graph; two backwards that reduce at once;
//            find_unused_parameters with a DTensor. Without find_unused_parameters, ranks that
//            miss different gradients, or reach other parameters, fail at this or the next
//            collective there (Error{CommFailed} on all), and with it those that reach none. So do
//            ranks that hold other values when the first backward begins, and ranks whose lists
//            have another order; the error names the parameter.
class DataParallel {
 public:
  DataParallel(std::vector<Tensor> parameters, const DeviceMesh& mesh, int dim,
               DataParallelOptions options = {}, CallSite site = CallSite::current());
  // The parameters' gradients stay where they are and are no longer reduced.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Gradient accumulation: while off, backward only adds to the gradients; the next one with it on
  // reduces the sum (torch's no_sync). Must be the same on all ranks.
  void set_requires_gradient_sync(bool on);
  // The bytes of each bucket, in the order in which they are sent; empty before the first backward.
  std::vector<std::int64_t> bucket_bytes() const;

 private:
  std::shared_ptr<GradientBuckets> buckets_;  // null: one rank
};

}  // namespace coshard
#pragma GCC visibility pop
