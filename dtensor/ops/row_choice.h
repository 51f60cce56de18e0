#pragma once
// Which schedule the gate gives a product of rows (row_schedules.h), from what all ranks know: the
// shapes, layouts and links of its tensors. Rank's thread.
#include <cstdint>
#include <optional>
#include <span>

#include <coshard/dtensor/ops/overlap.h>
#include "dtensor/ops/row_product.h"

namespace coshard {

struct RowChoice {
  int dim;     // of the rows that travel; -1: all_reduced
  int pieces;  // in which a shard or the whole is sent
  // The forecast of how long it waits; other work may fill that. Of an unknown link: the longest.
  std::int64_t exposed_ns;
};

// `meanwhile_ns`: how much other work there is to hide the collective under, which the plain
// schedule does too.

// For x in flight from an all_gather of its shards.
std::optional<RowChoice> arriving_choice(const RowFactor& factor, Overlap overlap,
                                         std::int64_t meanwhile_ns);
// For a product that is a sum over ranks and is wanted as `target`.
std::optional<RowChoice> sum_choice(std::span<const RowFactor> factors, Placement target,
                                    Overlap overlap, std::int64_t meanwhile_ns);
// Whether sum_choice could choose anything for such a factor.
bool may_send_rows(const Tensor& x, Overlap overlap);

// The forecast for the product dy^T @ x over all rows, on the rank with most of it; 0: the link is
// not known.
std::int64_t rows_product_ns(const Tensor& dy, const Tensor& x);

}  // namespace coshard
