#pragma once
// Words in which the operators' rules, costs and samples are written (op.h says what they mean).
// Pure functions.
#include <string>

#include <coshard/dtensor/ops/op.h>

namespace coshard {

using Infos = std::span<const TensorInfo>;

// "abc…", one letter per dimension.
std::string letters(std::size_t ndim, char first = 'a');
// The letters of `out` for a shape that broadcasts to it: '.' where it is stretched.
std::string broadcast_letters(const Shape& in, const Shape& out);

// Reductions that pass through linear operators, and those that pass through anything which only
// moves elements.
inline constexpr std::array kLinear{Reduce::Sum, Reduce::Avg};
inline constexpr std::array kMoving{Reduce::Sum, Reduce::Avg, Reduce::Min, Reduce::Max,
                                    Reduce::Product};
// Adds partial_strategy(in, out, reduce) for each of `reduces` to rule.extra.
void pass_partial(Rule& rule, std::string_view in, std::string_view out,
                  std::span<const Reduce> reduces);

// Elementwise over inputs that broadcast together; no Partial passes.
Rule elementwise_rule(Infos in, const Attrs&);
// One output, with the first input's shape and dtype.
std::vector<TensorInfo> same_as_first(Infos in, const Attrs&);
// One operation per element of the first input.
double one_per_element(Infos in, const Attrs&);
double no_flops(Infos in, const Attrs&);
std::vector<OpDef::Sample> no_samples();

// A sample's input.
inline TensorInfo input(const Shape& shape, DType dtype = DType::F64) {
  return {shape, dtype, true};
}
inline TensorInfo absent() { return {{}, DType::F32, false}; }

// Error{BadInput} unless the dtype is floating, or equals the other input's.
void require_floating(std::string_view op, const TensorInfo& x);
void require_same_dtype(std::string_view op, const TensorInfo& a, const TensorInfo& b);

// How many of the last dimensions of x `normalized_shape` is. Error{BadInput} unless it is.
std::int64_t normalized_dims(std::string_view op, const Tensor& x, const Shape& normalized_shape);

// Sums a gradient over the dimensions that broadcasting stretched.
Tensor sum_to(const Tensor& gradient, const Shape& shape);

}  // namespace coshard
