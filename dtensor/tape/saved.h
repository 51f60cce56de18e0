#pragma once
// A tensor that a record saves for backward. Rank's thread.
#include <string_view>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// A detached tensor, and how often its memory had been written to when it was saved.
class Saved {
 public:
  Saved() = default;  // nothing
  explicit Saved(const Tensor& tensor) {
    if (!tensor.defined()) return;
    tensor_ = tensor.with_spec(tensor.spec());
    changes_ = tensor.storage()->changes();
  }
  bool defined() const { return tensor_.defined(); }
  // Error{BadInput} "who: backward needs ..." if it was written to since.
  const Tensor& get(std::string_view who) const {
    if (tensor_.defined() && tensor_.storage()->changes() != changes_) refuse(who);
    return tensor_;
  }
  void release() { tensor_ = Tensor(); }

 private:
  [[noreturn]] void refuse(std::string_view who) const;
  Tensor tensor_;
  std::uint32_t changes_ = 0;
};

}  // namespace coshard
