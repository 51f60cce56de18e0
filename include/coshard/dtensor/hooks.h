#pragma once
// Functions that backward calls with a gradient that is complete. Rank's thread.
#include <functional>
#include <memory>

#include <coshard/dtensor/tensor.h>

namespace coshard {

struct GradHook;

class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::weak_ptr<GradHook> hook) : hook_(std::move(hook)) {}
  void remove();  // it is not called any more; may be called again

 private:
  std::weak_ptr<GradHook> hook_;
};

// Once in each backward that reaches `tensor`, when all that flows to it has been added up; what
// the hook gives takes the gradient's place, unless it is undefined (torch's register_hook). For a
// leaf that is the end of backward, before the gradient is added to grad(). Hooks run in the order
// in which they were registered, off the tape unless backward has create_graph, and may not await.
// A hook may remove itself. Error{BadInput}: the tensor requires no gradient; in backward, another
// shape or dtype, a plain tensor for a DTensor, or a write to the gradient, which others may read.
HookHandle register_hook(const Tensor& tensor, std::function<Tensor(const Tensor& gradient)> hook);

// Once in each backward that reaches the leaf, when its grad() is complete (torch's
// register_post_accumulate_grad_hook); grad() may be in flight. Error{BadInput}: no leaf that
// requires a gradient.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook);

// Backward leaves a copy of the gradient of a tensor that is no leaf in its grad() too, after its
// hooks. After a write in place, that of what the tensor holds then. Nothing for a leaf.
void retain_grad(const Tensor& tensor);

}  // namespace coshard
