// Merging, splitting and repeating dimensions, composed of view, permute and expand.
#include <coshard/dtensor/ops/ops.h>
#include "runtime/coro/user_call.h"

namespace coshard {

Tensor reshape(const Tensor& x, const Shape& shape, CallSite site) {
  const OperatorCall user(site);
  return view(x, shape);
}

namespace {

// A repetition is not a view: it has its own memory.
Tensor repetition(const Tensor& x, const Tensor& repeated) {
  if (repeated.storage()->buffer == x.storage()->buffer) return clone(repeated);
  repeated.set_unwritable(nullptr);
  repeated.set_logical(nullptr);
  return repeated;
}

}  // namespace

Tensor flatten(const Tensor& x, int start_dim, int end_dim, CallSite site) {
  const OperatorCall user(site);
  if (x.ndim() == 0) return view(x, Shape{1});
  const int first = normalize_dim(start_dim, x.ndim(), "flatten");
  const int last = normalize_dim(end_dim, x.ndim(), "flatten");
  CS_REQUIRE(first <= last, "flatten: dimensions ", start_dim, " to ", end_dim, " of ", x,
             " are in the wrong order");
  Shape to;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d <= first || d > last) {
      to.push_back(x.size(d));
    } else {
      to.back() *= x.size(d);
    }
  }
  return view(x, to);
}

Tensor unflatten(const Tensor& x, int dim, const Shape& sizes, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "unflatten");
  CS_REQUIRE(x.shape().size() + sizes.size() <= 9, "unflatten: dimension ", dim, " of ", x,
             " into ", sizes, ": a tensor has at most 8 dimensions");
  std::int64_t known = 1;
  for (const std::int64_t size : sizes) {
    CS_REQUIRE(size >= -1, "unflatten: size ", size, " in ", sizes);
    known *= size == -1 ? 1 : size;
  }
  Shape to;
  std::int64_t product = 1;
  for (int d = 0; d < x.ndim(); ++d) {
    if (d != along) {
      to.push_back(x.size(d));
      continue;
    }
    for (const std::int64_t size : sizes) {
      to.push_back(size != -1 || known == 0 ? size : x.size(d) / known);
      product *= to.back();
    }
  }
  CS_REQUIRE(!sizes.empty() && product == x.size(along), "unflatten: dimension ", dim, " of ", x,
             " does not split into ", sizes);
  return view(x, to);
}

Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, int dim, CallSite site) {
  const OperatorCall user(site);
  const int along = normalize_dim(dim, x.ndim(), "repeat_interleave");
  CS_REQUIRE(repeats >= 0, "repeat_interleave: repeats must not be negative, got ", repeats);
  if (repeats == 1) return clone(x);
  Shape stretched = x.shape();
  stretched.insert(static_cast<std::size_t>(along) + 1, repeats);
  return repetition(x, flatten(expand(unsqueeze(x, along + 1), stretched), along, along + 1));
}

Tensor repeat(const Tensor& x, const Shape& repeats, CallSite site) {
  const OperatorCall user(site);
  CS_REQUIRE(repeats.size() >= x.shape().size(), "repeat: ", repeats, " has fewer entries than ", x,
             " has dimensions");
  Tensor out = x;
  while (static_cast<std::size_t>(out.ndim()) < repeats.size()) out = unsqueeze(out, 0);
  for (int d = 0; d < out.ndim(); ++d) {
    const std::int64_t times = repeats[static_cast<std::size_t>(d)];
    CS_REQUIRE(times >= 0, "repeat: negative entry in ", repeats);
    if (times == 1) continue;
    Shape stretched = out.shape();
    stretched.insert(static_cast<std::size_t>(d), times);
    out = flatten(expand(unsqueeze(out, d), stretched), d, d + 1);
  }
  return repetition(x, out);
}

}  // namespace coshard
