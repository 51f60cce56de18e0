#pragma once
// linear, for schedules that compute its rows in parts. Rank's thread.
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/ops/overlap.h>

namespace coshard {

// Whether the gradient of x may overlap with the collectives around it.
struct LinearAttrs {
  Overlap overlap = Overlap::Off;
};
const OpDef& linear_op();
Tensor linear_with(const Tensor& x, const Tensor& weight, const Tensor& bias, Overlap overlap);
// x: some of the rows of in[0]; out: the same rows of the product, to be filled or added to. Both
// may be strided.
enum class RowsInto : bool { Replace, Add };
void linear_rows(const OpContext& c, const Tensor& x, const Tensor& out,
                 RowsInto into = RowsInto::Replace);

}  // namespace coshard
