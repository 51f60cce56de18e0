#pragma once
// Cross entropy of logits whose classes are cut over the ranks, without gathering them. Rank's
// thread.
#include "dtensor/ops/ops.h"
#include "runtime/coro/task.h"

namespace coshard {

struct LossParallelOptions {
  Reduction reduction = Reduction::Mean;  // mean: over the targets that are not ignored
  std::int64_t ignore_index = -100;
  double label_smoothing = 0;
  int class_dim = -1;  // may be any dimension; all others are one batch
};

// logits: a DTensor on a one-dimensional mesh with its classes cut, or whole (Replicate, or a plain
// tensor: then nothing is sent). targets: i64 or i32, the shape of logits without the class
// dimension, whole on every rank (plain or Replicate). weight [classes] (plain, whole): the loss of
// class c counts weight[c] times, also in the mean; not with label_smoothing. Returns the loss,
// Replicate when logits are a DTensor: a scalar, or one value per target for Reduction::None.
//   Resumes: when the loss is ordered on the device.
//   Moves:   forward two all_reduces of one and two (label smoothing: three) statistics per target;
//   backward nothing: the gradient
//            lies as the logits do.
//   Fails:   Error{BadInput}: another dimension is cut, Partial logits, shapes that do not fit, a
//   target out of range;
//            Error{Unsupported}: a mesh of more dimensions.
Task<Tensor> loss_parallel_cross_entropy(Tensor logits, Tensor targets,
                                         LossParallelOptions options = {}, Tensor weight = {});

}  // namespace coshard
