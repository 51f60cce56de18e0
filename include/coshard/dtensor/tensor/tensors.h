#pragma once
// A list of tensors as an argument of a coroutine: {x, y}, or a vector. A value.
#include <concepts>
#include <utility>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

struct Tensors : std::vector<Tensor> {
  Tensors() = default;
  Tensors(std::vector<Tensor> tensors) : vector(std::move(tensors)) {}  // NOLINT: implicit
  // No initializer_list, as in inline_vector.h.
  template <std::same_as<Tensor>... Rest>
  Tensors(const Tensor& first, const Rest&... rest) : vector{first, rest...} {}  // NOLINT
};

}  // namespace coshard
#pragma GCC visibility pop
