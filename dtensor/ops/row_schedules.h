#pragma once
// How a product of rows overlaps with the collective before or after it: in forward the product of a
// linear layer, in backward the gradient of its input. Rank's thread; off the tape.
//
//   Resumes:  once the result is ordered on the device. Suspends for each shard or piece, on a rank
//             outside the mesh as often.
//   Issues:   equal on all ranks: what it says below, in the same order.
#include <functional>

#include <coshard/runtime/coro/task.h>
#include "dtensor/ops/row_product.h"

namespace coshard {

// Other work, done when the schedule has nothing to compute until data come. Null: none.
using Meanwhile = std::function<void()>;

// The product of an x that an all_gather along `dim` still brings: each shard as it arrives, own
// first. Issues nothing. Bitwise the plain product where that is computed row by row.
Task<Tensor> rows_as_they_arrive(RowProduct& product, int dim, Meanwhile meanwhile);

// The sum over ranks of the product.
//   dim >= 0: each rank's shard along it. The rows of rank+1, rank+2, … are sent as soon as they are
//     computed, own rows last, and each rank adds up what it receives, in rank order (f32 for
//     smaller dtypes). Issues n-1 all_to_alls per piece.
//   dim -1: on each rank. Issues one all_reduce per piece of rows.
Task<Tensor> rows_summed(RowProduct& product, int dim, int pieces, Meanwhile meanwhile);

}  // namespace coshard
