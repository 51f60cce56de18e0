#pragma once
// Building blocks for operators' rules, costs and samples (op.h explains them). Pure functions.
#include <string>

#include <coshard/dtensor/ops/op.h>

#pragma GCC visibility push(default)
namespace coshard {

using Infos = std::span<const TensorInfo>;

// "abc…", one axis per dimension.
std::string axes(std::size_t ndim, char first = 'a');
// The axes of `out` for a shape that broadcasts to it: '.' where it is expanded.
std::string broadcast_axes(const Shape& in, const Shape& out);

// Reductions that commute with linear operators, and those that commute with anything that only
// moves elements.
inline constexpr std::array kLinear{Reduce::Sum, Reduce::Avg};
inline constexpr std::array kMoving{Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max,
                                    Reduce::Product};
// Adds partial_strategy(in, out, reduce) for each of `reduces` to rule.extra.
void pass_partial(Rule& rule, std::string_view in, std::string_view out,
                  std::span<const Reduce> reduces);

// Elementwise over inputs that broadcast together; no Partial passes through.
Rule elementwise_rule(Infos in, const Attrs&);
// One output, with the first input's shape and dtype.
std::vector<TensorInfo> same_as_first(Infos in, const Attrs&);
std::vector<OpDef::Sample> no_samples();

// An input of a sample.
inline TensorInfo input(const Shape& shape, DType dtype = DType::F64) {
  return {shape, dtype, true};
}
inline TensorInfo absent() { return {{}, DType::F32, false}; }

// Error{BadInput} unless the dtype is floating-point; unless both dtypes are equal.
void require_floating(std::string_view op, const TensorInfo& x);
void require_same_dtype(std::string_view op, const TensorInfo& a, const TensorInfo& b);

// How many of x's last dimensions `normalized_shape` covers. Error{BadInput} unless they match.
int normalized_dims(std::string_view op, const Tensor& x, const Shape& normalized_shape);

// Sums a gradient over the dimensions that were broadcast.
Tensor sum_to(const Tensor& gradient, const Shape& shape);

}  // namespace coshard
#pragma GCC visibility pop
