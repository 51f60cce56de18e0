#include <coshard/dtensor/ops/axes.h>

#include <coshard/dtensor/ops/ops.h>

namespace coshard {

std::string axes(std::size_t ndim, char first) {
  std::string text;
  for (std::size_t i = 0; i < ndim; ++i) text += static_cast<char>(first + static_cast<char>(i));
  return text;
}

std::string broadcast_axes(const Shape& in, const Shape& out) {
  const std::size_t lead = out.size() - in.size();
  std::string text = axes(out.size()).substr(lead);
  for (std::size_t i = 0; i < in.size(); ++i)
    if (in[i] != out[lead + i]) text[i] = '.';
  return text;
}

void pass_partial(Rule& rule, std::string_view in, std::string_view out,
                  std::span<const Reduce> reduces) {
  for (const Reduce reduce : reduces) rule.extra.push_back(partial_strategy(in, out, reduce));
}

Rule elementwise_rule(Infos in, const Attrs&) {
  Shape out;
  for (const TensorInfo& x : in)
    if (x.defined) out = broadcast(out, x.shape, "elementwise");
  Rule rule;
  for (const TensorInfo& x : in)
    rule.in.push_back(x.defined ? broadcast_axes(x.shape, out) : std::string());
  rule.out = {axes(out.size())};
  rule.strided = true;
  return rule;
}

std::vector<TensorInfo> same_as_first(Infos in, const Attrs&) { return {in[0]}; }

[[gnu::cold]] std::vector<OpDef::Sample> no_samples() { return {}; }

void require_floating(std::string_view op, const TensorInfo& x) {
  if (is_float8(x.dtype)) fail_without_arithmetic(x.dtype);
  CS_REQUIRE(is_floating(x.dtype), op, ": ", x.dtype, x.shape,
             " is none of f32, f64, bf16 and f16");
}

int normalized_dims(std::string_view op, const Tensor& x, const Shape& normalized_shape) {
  const auto count = static_cast<int>(normalized_shape.size());
  CS_REQUIRE(
      count > 0 && count <= x.ndim() &&
          std::equal(normalized_shape.begin(), normalized_shape.end(), x.shape().end() - count),
      op, ": normalized_shape ", normalized_shape, " does not match the last dimensions of ", x);
  return count;
}

void require_same_dtype(std::string_view op, const TensorInfo& a, const TensorInfo& b) {
  CS_REQUIRE(a.dtype == b.dtype, op, ": dtypes differ: ", a.dtype, a.shape, " and ", b.dtype,
             b.shape);
}

}  // namespace coshard
