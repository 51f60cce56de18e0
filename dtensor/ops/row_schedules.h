#pragma once
// Schedules that overlap a matmul with the collective before or after it: in forward that of a
// linear layer, in backward that of its input's gradient. Rank's thread; off the tape.
//
//   Resumes:  once the result is ordered on the device. Suspends for each shard or piece, as
//             often on a rank outside the mesh.
//   Issues:   as stated below, in the same order on all ranks.
#include <functional>

#include <coshard/runtime/coro/task.h>
#include "dtensor/ops/row_product.h"

namespace coshard {

// Other work, done when the schedule has nothing to compute until data arrive. Null: none.
using Meanwhile = std::function<void()>;

// The product of an x in flight from an all_gather along `dim`: each shard as it arrives, this
// rank's first. Issues nothing. Bitwise equal to the plain product if that is computed by rows.
Task<Tensor> rows_as_they_arrive(RowProduct& product, int dim, Meanwhile meanwhile);

// The sum over ranks of the product.
//   dim >= 0: each rank's shard along it. The rows of rank+1, rank+2, … are sent once they are
//     computed, own rows last, and each rank adds up what it receives, in rank order (f32 for
//     smaller dtypes). Issues n-1 all_to_alls per piece.
//   dim -1: on each rank. Issues one all_reduce per piece of rows.
Task<Tensor> rows_summed(RowProduct& product, int dim, int pieces, Meanwhile meanwhile);

}  // namespace coshard
