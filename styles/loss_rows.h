#pragma once
// The arithmetic of a cross entropy row by row, from statistics over the classes: what each row
// counts for, its loss, and the factors of its gradient. Local tensors only, off the tape; nothing
// is read by the host. Rank's thread.
#include <coshard/styles/loss_parallel.h>

namespace coshard {

// Logits as [rows, classes] on this rank. Vectors over the rows and scalars ([1]) are in the
// statistics' dtype.
struct LossRows {
  Tensor logits;   // contiguous, classes last
  Tensor targets;  // i64 [rows]
  Tensor weight;   // of this rank's classes; undefined: all 1
  std::int64_t rows = 0, classes = 0;
  std::int64_t first = 0, all_classes = 0;  // where this rank's classes lie
  LossParallelOptions options;
  Tensor counted;        // bool [rows]: not ignored
  Tensor target_weight;  // [rows]: weight[target]; 0 where ignored
  Tensor weight_sum;     // [1] over all classes; undefined: their number
  Tensor scale;          // [1], of every row: 1 / the batch's weight for a mean; undefined: 1

  DType statistic() const { return logits.dtype() == DType::F64 ? DType::F64 : DType::F32; }
  bool smooth() const { return options.label_smoothing != 0; }
  std::int64_t statistics() const { return smooth() ? 4 : 3; }  // of a row
};

// Error{BadInput}: a target (local, i64) is no class and not ignored.
void check_targets(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index);
// Fills weights and counts. Error{BadInput}: a weight of another shape.
void weigh_rows(LossRows& p, const Tensor& weight);
// Sum of the target weights, f64 [1]: what a mean divides by.
Tensor batch_weight(const LossRows& p);

// [slots, 3 or (smooth) 4, rows]: zeros but in slot `own`, what is found of this rank's classes:
// the largest logit, the sum of exp relative to it, the target's logit (0 where it is not here),
// the weighted sum of the logits. A sum over ranks with a slot each therefore is what all of them
// found.
Tensor row_statistics(const LossRows& p, int own, int slots);
// The slots as of all classes, [3 or 4, rows].
Tensor joined_statistics(const LossRows& p, const Tensor& slots);
// The rows' losses, [rows], from the statistics over all classes.
Tensor row_losses(const LossRows& p, const Tensor& statistics);
// Of each row, [rows]: what its wanted distribution sums to; and, as the logits, that distribution
// times -1. With the softmax p of the logits, rows_gradient is given * (sum * p + wanted).
Tensor wanted_sums(const LossRows& p);
Tensor negative_wanted(const LossRows& p, const Tensor& statistics);
// The gradient of this rank's logits; `given`: of each row's loss, [rows] or [1].
Tensor rows_gradient(const LossRows& p, const Tensor& given, const Tensor& statistics);

}  // namespace coshard
