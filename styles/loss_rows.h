#pragma once
// The arithmetic of a cross entropy row by row, from statistics over the classes: what each row
// counts for, its loss, and the factors of its gradient. Local tensors only; rank's thread.
#include <vector>

#include "styles/loss_parallel.h"

namespace coshard {

// Logits as [rows, classes] on this rank. All vectors have one entry per row.
struct LossRows {
  Tensor logits;   // contiguous, classes last
  Tensor targets;  // i64 [rows]
  Tensor weight;   // of this rank's classes, in the statistics' dtype; undefined: all 1
  std::int64_t rows = 0, classes = 0;
  std::int64_t first = 0, all_classes = 0;  // where this rank's classes lie
  LossParallelOptions options;
  std::vector<double> target_weight;  // weight[target]; 0 where ignored
  std::vector<double> counted;        // 1, or 0 where ignored
  double weight_sum = 0;              // over all classes
  double own_weight_sum = 0;          // over this rank's
  double scale = 1;                   // of every row: 1 / the batch's weight for a mean

  DType statistic() const { return logits.dtype() == DType::F64 ? DType::F64 : DType::F32; }
  bool smooth() const { return options.label_smoothing != 0; }
};

// Error{BadInput}: a target (local, i64) is no class and not ignored.
void check_targets(const Tensor& targets, std::int64_t classes, std::int64_t ignore_index);
// Fills weights and counts of checked targets. Error{BadInput}: a weight of another shape.
void weigh_rows(LossRows& p, const Tensor& weight);
// Sum of the target weights: what a mean divides by.
double batch_weight(const LossRows& p);

// [1, rows]: the largest logit of this rank's classes.
Tensor row_max(const LossRows& p);
// [2 or (smooth) 3, rows] over this rank's classes, relative to the rows' maxima: sum of exp, the
// target's logit (0 elsewhere), weighted sum of the logits.
Tensor row_statistics(const LossRows& p, const Tensor& max);
// The rows' losses from the statistics over all classes.
std::vector<double> row_losses(const LossRows& p, const Tensor& statistics);
// The gradient of this rank's logits; `given`: of each row's loss.
Tensor rows_gradient(const LossRows& p, const std::vector<double>& given, const Tensor& max,
                     const Tensor& sum);

}  // namespace coshard
