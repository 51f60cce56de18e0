#pragma once
// Cross entropy per row, from statistics over the classes: each row's weight, loss, and factors of
// its gradient. Local tensors only, off the tape; nothing is read on the host. Rank's thread.
#include <coshard/styles/loss_parallel.h>

namespace coshard {

// Logits as [rows, classes] on this rank. Vectors over rows and scalars ([1]) have the statistics'
// dtype.
struct LossRows {
  Tensor logits;   // contiguous, classes last
  Tensor targets;  // i64 [rows]
  Tensor weight;   // of this rank's classes; undefined: all 1
  std::int64_t rows = 0, classes = 0;
  std::int64_t first = 0, all_classes = 0;  // this rank's first class; the number of all
  LossParallelOptions options;
  Tensor counted;        // bool [rows]: not ignored
  Tensor target_weight;  // [rows]: weight[target]; 0 where ignored
  Tensor weight_sum;     // [1] over all classes; undefined: their number
  Tensor scale;          // [1], for every row: 1 / the batch's weight for a mean; undefined: 1

  DType statistic() const { return logits.dtype() == DType::F64 ? DType::F64 : DType::F32; }
  bool smooth() const { return options.label_smoothing != 0; }
  std::int64_t statistics() const { return smooth() ? 4 : 3; }  // of a row
};

// Error{BadInput}: a local i64 target that is neither a class nor ignored.
void check_targets(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index);
// Computes weights and counts. Error{BadInput}: a weight of another shape.
void weigh_rows(LossRows& p, const Tensor& weight);
// Sum of the target weights, f64 [1]: the divisor of a mean.
Tensor batch_weight(const LossRows& p);

// [slots, 3 or (smooth) 4, rows]: zeros except in slot `own`, which holds the statistics of this
// rank's classes: the largest logit; the sum of exp relative to it; the target's logit (0 if it is
// not here); the weighted sum of the logits. With one slot per rank, a sum over ranks collects all
// of them.
Tensor row_statistics(const LossRows& p, int own, int slots);
// The slots combined over all classes, [3 or 4, rows].
Tensor joined_statistics(const LossRows& p, const Tensor& slots);
// The rows' losses, [rows], from the statistics over all classes.
Tensor row_losses(const LossRows& p, const Tensor& statistics);
// Per row, [rows]: the sum of its target distribution; and, with the logits' shape, that
// distribution times -1. With p the softmax of the logits, rows_gradient is given * (sum * p +
// wanted).
Tensor wanted_sums(const LossRows& p);
Tensor negative_wanted(const LossRows& p, const Tensor& statistics);
// The gradient of this rank's logits. `given`: the gradient of each row's loss, [rows] or [1].
Tensor rows_gradient(const LossRows& p, const Tensor& given, const Tensor& statistics);

}  // namespace coshard
