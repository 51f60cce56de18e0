#pragma once
// Cross entropy of logits whose classes are sharded, without gathering them. Rank's thread.
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

struct LossParallelOptions {
  Reduction reduction = Reduction::Mean;  // mean: over the targets that are not ignored
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  int class_dim = -1;  // may be any dimension; all others are one batch
};

// logits: a DTensor with exactly one mesh dimension sharding the classes; the others shard other
// dimensions or replicate. Or a plain tensor: then nothing is sent. targets: i64 or i32, of the
// logits' shape without the class dimension: plain (whole on every rank), or a DTensor on the same
// mesh, which is redistributed to the layout of the logits' rows. weight [classes], plain or
// Replicate: class c counts weight[c] times (torch.nn.functional.cross_entropy, including
// label_smoothing). mean: over the whole batch of the mesh. Returns the loss: one value per target,
// in the layout of the logits' rows, or a scalar: P(sum) along mesh dimensions that shard rows,
// Replicate along the others.
//   Resumes: when the loss is ordered on the device.
//   Moves:   forward: one all_reduce along the classes of three statistics per target and rank
//            (four with label smoothing); for a mean over sharded rows, one more, of a single
//            number.
//            Backward: nothing; the gradient has the logits' layout.
//   Fails:   Error{BadInput}: any other layout of the logits; shapes that do not fit; a target out
//            of bounds.
Task<Tensor> loss_parallel_cross_entropy(Tensor logits, Tensor targets,
                                         LossParallelOptions options = {}, Tensor weight = {},
                                         CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
