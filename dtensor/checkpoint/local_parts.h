#pragma once
// This rank's parts of tensors as bytes of a file: row-major, in the file's type. Rank's thread.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// What `f` throws; null: nothing. Of steps that are agreed upon before anything is thrown.
template <class F>
std::exception_ptr failure_of(F&& f) {
  try {
    std::forward<F>(f)();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// Of this rank's parts, which have one shape and dtype.
bool has_same_bits(const Tensor& a, const Tensor& b);

// Memory for what a tensor that is tied to `x` has, in x's layout.
Tensor empty_as(const Tensor& x);

// Partials reduced, in flight, off the tape; all ranks.
std::vector<Tensor> without_partials(std::vector<Tensor> tensors);

// What is read of tensors in another type, or not row-major, is a copy, until it is let go.
class PartsToSave {
 public:
  PartsToSave(std::vector<Tensor> tensors, std::vector<DType> types)
      : tensors_(std::move(tensors)), types_(std::move(types)), parts_(tensors_.size()) {}
  void read(std::size_t i, std::int64_t at, std::span<std::byte> to);
  void let_go(std::size_t i) { parts_[i] = Tensor(); }

 private:
  std::vector<Tensor> tensors_;
  std::vector<DType> types_;
  std::vector<Tensor> parts_;
};

// What is written goes into the tensor's own memory if it has that type and is row-major there,
// else into memory aside, until it is put there.
class PartsToLoad {
 public:
  // Error{BadInput}: one that cannot be written in place.
  PartsToLoad(std::vector<Tensor> tensors, std::vector<DType> types);
  void write(std::size_t i, std::int64_t at, std::span<const std::byte> from);
  // Tensor i has its value.
  void put(std::size_t i);

 private:
  std::vector<Tensor> tensors_;
  std::vector<DType> types_;
  std::vector<Tensor> parts_;
};

}  // namespace coshard
