#pragma once
// linear, for schedules that compute its rows in parts. Rank's thread.
#include <coshard/dtensor/ops/op.h>

namespace coshard {

const OpDef& linear_op();
// x: some of the rows of in[0]; out: the same rows of the product, to be filled. Both may be
// strided.
void linear_rows(const OpContext& c, const Tensor& x, const Tensor& out);

}  // namespace coshard
