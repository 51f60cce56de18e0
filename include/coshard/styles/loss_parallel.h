#pragma once
// Cross entropy of logits whose classes are cut over the ranks, without gathering them. Rank's
// thread.
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

struct LossParallelOptions {
  Reduction reduction = Reduction::Mean;  // mean: over the targets that are not ignored
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  int class_dim = -1;  // may be any dimension; all others are one batch
};

// logits: a DTensor of which exactly one mesh dimension cuts the classes; the others cut other
// dimensions or replicate. Or a plain tensor: then nothing is sent. targets: i64 or i32, the shape
// of logits without the class dimension: plain (whole on every rank), or a DTensor on the same
// mesh, which is redistributed to lie as the logits' rows. weight [classes] (plain or Replicate):
// class c counts weight[c] times (torch.nn.functional.cross_entropy, also with label_smoothing).
// mean: over the whole batch of the mesh. Returns the loss: one value per target, lying as the
// logits' rows, or a scalar: P(sum) along mesh dimensions that cut rows, Replicate along the
// others.
//   Resumes: when the loss is ordered on the device.
//   Moves:   forward one all_reduce of three (label smoothing: four) statistics per target and rank
//   along the classes; for a mean over cut rows one more, of a number;
//   backward nothing: the gradient lies as the logits do.
//   Fails:   Error{BadInput}: any other layout of the logits, shapes that do not fit, a target out
//   of range.
Task<Tensor> loss_parallel_cross_entropy(Tensor logits, Tensor targets,
                                         LossParallelOptions options = {}, Tensor weight = {},
                                         CallSite site = CallSite::current());

}  // namespace coshard
