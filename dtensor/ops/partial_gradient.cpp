#include "dtensor/ops/partial_gradient.h"

#include <coshard/dtensor/ops/ops.h>
#include "dtensor/redistribute/execute.h"

namespace coshard {
namespace {

// The terms that the ranks along mesh dimension m reduce, stacked: [n, local shape...].
Tensor terms_along(const Tensor& term, int m) {
  Layout inner_reduced = term.layout();
  for (int after = m + 1; after < inner_reduced.ndim(); ++after)
    if (inner_reduced[after].is_partial()) inner_reduced[after] = Replicate();
  const Tensor mine = redistribute_raw(term, inner_reduced).raw_local();
  Shape stacked;
  stacked.push_back(1);
  for (auto size : mine.local_shape()) stacked.push_back(size);
  const Tensor row = view(mine, stacked);
  stacked[0] = term.mesh().size(m);
  const DeviceMesh line = term.mesh()[term.mesh().names()[static_cast<std::size_t>(m)]];
  const Tensor rows = row.with_spec(make_spec(line, Shard(0), stacked));
  return redistribute_raw(rows, Replicate()).raw_local();
}

Tensor row_of(const Tensor& terms, int rank) {
  Shape shape = terms.local_shape();
  shape.erase(0);
  return view(contiguous(slice(terms, 0, rank, rank + 1)), shape);
}

Tensor product_of_others(const Tensor& terms, int rank, Tensor gradient) {
  for (int other = 0; other < static_cast<int>(terms.size(0)); ++other)
    if (other != rank) gradient = mul(gradient, row_of(terms, other));
  return gradient;
}

// 1/k where this rank is one of the k that hold the extreme, 0 elsewhere.
Tensor share_of_extreme(Tensor terms, int rank, bool smallest) {
  if (smallest) terms = neg(terms);
  const Tensor holds = to(eq(terms, amax(terms, 0, true)), terms.dtype());
  return div(row_of(holds, rank), sum(holds, 0));
}

}  // namespace

Tensor gradient_of_partial(const Tensor& gradient, const Tensor& term, const DeviceMesh& mesh,
                           const Layout& layout) {
  Tensor out = gradient;
  for (int m = 0; m < layout.ndim(); ++m) {
    const Placement p = layout[m];
    if (!p.is_partial() || p.reduce == Reduce::Sum || mesh.size(m) == 1) continue;
    if (p.reduce == Reduce::Avg) {
      out = mul(out, 1.0 / mesh.size(m));
      continue;
    }
    const Tensor terms = terms_along(term, m);
    const int rank = mesh.local_rank(m);
    if (p.reduce == Reduce::Product) {
      out = product_of_others(terms, rank, out);
    } else {
      out = mul(out, share_of_extreme(terms, rank, p.reduce == Reduce::Min));
    }
  }
  return out;
}

}  // namespace coshard
