#pragma once
// Inputs and gradients of an operator's samples, the same in every run.
#include <cmath>
#include <vector>

#include <coshard/dtensor/ops/op.h>
#include <coshard/runtime/launch/world.h>

namespace coshard::testing {

// A fixed value in [low, high) for element i of input k.
inline double value_at(std::size_t k, std::size_t i, double low, double high) {
  const double x = std::sin(static_cast<double>(k * 7919 + i * 104729 + 13)) * 43758.5453;
  return low + (high - low) * (x - std::floor(x));
}

inline Tensor make_input(World& world, const OpDef::Sample& sample, std::size_t k) {
  const TensorInfo& info = sample.in[k];
  if (!info.defined) return {};
  std::vector<double> values(static_cast<std::size_t>(numel(info.shape)));
  const bool floating = is_floating(info.dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = floating ? value_at(k, i, sample.low, sample.high)
                         : std::floor(value_at(k, i, 0, static_cast<double>(sample.int_high)));
  }
  return Tensor::from_values(world.device(), info.shape, floating ? DType::F64 : info.dtype,
                             values);
}

inline bool wants_gradient(const OpDef::Sample& sample, const Tensor& x, std::size_t k) {
  if (!x.defined() || !is_floating(x.dtype())) return false;
  if (sample.grads.empty()) return true;
  for (int g : sample.grads)
    if (static_cast<std::size_t>(g) == k) return true;
  return false;
}

// The seed of backward, different for every element.
inline Tensor seed_for(World& world, const Tensor& out) {
  std::vector<double> values(static_cast<std::size_t>(out.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(99, i, -1, 1);
  return Tensor::from_values(world.device(), out.shape(), out.dtype(), values);
}

}  // namespace coshard::testing
