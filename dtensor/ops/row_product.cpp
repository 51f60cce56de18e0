#include "dtensor/ops/row_product.h"

#include <algorithm>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/ops/linear.h"
#include "dtensor/ops/local.h"

namespace coshard {

Tensor part_of(const Tensor& x, int dim, const Chunk& part) {
  const auto d = static_cast<std::size_t>(dim);
  Shape shape = x.local_shape();
  shape[d] = part.size;
  return Tensor::alias(x, shape, x.strides(), x.storage_offset() + part.offset * x.strides()[d]);
}

RowFactor gradient_factor(const Tensor& dy, const Tensor& weight) {
  return {dy, transpose(weight, 0, 1)};
}

RowProduct::RowProduct(const std::vector<RowFactor>& factors, Overlap overlap) {
  for (const RowFactor& f : factors) {
    calls_.emplace_back(linear_op(), std::vector<Tensor>{f.x, f.weight, f.bias},
                        LinearAttrs{overlap});
    xs_.push_back(calls_.back().used()[0]);
  }
}

bool RowProduct::is_sum() const {
  return std::ranges::all_of(calls_, [](const OpCall& call) {
    return call.spec() && call.spec()->layout == Layout(Partial(Reduce::Sum));
  });
}

bool RowProduct::reads(const Tensor& source) const {
  return x().storage() == source.storage() && x().spec() == source.spec();
}

void RowProduct::flatten() {
  for (Tensor& x : xs_) x = matrix_rows(x);
}

void RowProduct::compute(int dim, const Chunk& rows, const Tensor& out) const {
  if (out.local_numel() == 0) return;
  World& world = *World::current();
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    const OpContext context = calls_[i].context();
    const Tensor x = part_of(xs_[i], dim, rows);
    const RowsInto into = i == 0 ? RowsInto::Replace : RowsInto::Add;
    if (!world.observed()) {
      linear_rows(context, x, out, into);
      continue;
    }
    const Computing told(world.observer(), context.device(), "linear", ComputeClass::Gemm,
                         [&x] { return str_cat(x.dtype(), x.local_shape()); });
    linear_rows(context, x, out, into);
  }
}

}  // namespace coshard
