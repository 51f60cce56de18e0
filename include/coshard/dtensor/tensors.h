#pragma once
// Tensors that a coroutine takes over: {x, y}, or a vector of them. A value.
#include <concepts>
#include <utility>
#include <vector>

#include <coshard/dtensor/tensor.h>

namespace coshard {

struct Tensors : std::vector<Tensor> {
  Tensors() = default;
  Tensors(std::vector<Tensor> tensors) : vector(std::move(tensors)) {}  // NOLINT: implicit
  // No initializer_list, as in inline_vector.h.
  template <std::same_as<Tensor>... Rest>
  Tensors(const Tensor& first, const Rest&... rest) : vector{first, rest...} {}  // NOLINT
};

}  // namespace coshard
