#pragma once
// Asks the gate for the schedule of a matmul (row_schedules.h), with what all ranks know: the
// shapes, layouts and links of its tensors. Rank's thread.
#include <cstdint>
#include <optional>
#include <span>

#include <coshard/dtensor/ops/overlap.h>
#include "dtensor/ops/row_product.h"

namespace coshard {

struct RowChoice {
  int dim;     // of the rows that are sent; -1: all_reduced
  int pieces;  // into which a shard or the whole is split
  // The predicted waiting time, which other work may fill. For an unknown link: the maximum.
  std::int64_t exposed_ns;
};

// `meanwhile_ns`: how much other work there is to hide the collective, also in the plain schedule.

// For what an all_gather fills by shards, multiplied by `weight`.
std::optional<RowChoice> gather_choice(const Gathered& gathered, const Tensor& weight,
                                       Overlap overlap, std::int64_t meanwhile_ns);
// For x in flight from an all_gather of its shards.
std::optional<RowChoice> arriving_choice(const RowFactor& factor, Overlap overlap,
                                         std::int64_t meanwhile_ns);
// For a product that is summed over ranks into `target`.
std::optional<RowChoice> sum_choice(std::span<const RowFactor> factors, Placement target,
                                    Overlap overlap, std::int64_t meanwhile_ns);
// Whether sum_choice could choose anything for such a factor.
bool may_send_rows(const Tensor& x, Overlap overlap);

// The predicted time of dy^T @ x over all rows, on the rank with the largest part; 0: the link is
// not known.
std::int64_t rows_product_ns(const Tensor& dy, const Tensor& x);

}  // namespace coshard
