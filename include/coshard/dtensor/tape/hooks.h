#pragma once
// Hooks: functions that backward calls with a complete gradient. Rank's thread.
#include <functional>
#include <memory>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

struct GradHook;

class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::weak_ptr<GradHook> hook) : hook_(std::move(hook)) {}
  void remove();  // the hook is not called any more; idempotent

 private:
  std::weak_ptr<GradHook> hook_;
};

// Called once in each backward that reaches `tensor`, when its gradient has been summed up. What
// the hook returns replaces the gradient, unless undefined (torch.Tensor.register_hook). For a
// leaf, this happens at the end of backward, before the gradient is added to grad(). Hooks run in
// order of registration, off the tape unless backward has create_graph, and may not await. A hook
// may remove itself.
//   Fails: Error{BadInput}: the tensor does not require a gradient; in backward: a result with
//          another shape or dtype, a plain tensor for a DTensor, or a write to the gradient, which
//          others may read.
HookHandle register_hook(const Tensor& tensor, std::function<Tensor(const Tensor& gradient)> hook);

// Called once in each backward that reaches the leaf, when its grad() is complete, possibly in
// flight (torch's register_post_accumulate_grad_hook). Error{BadInput}: not a leaf that requires a
// gradient.
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook);

// Backward also stores the gradient of this non-leaf in its grad(), after its hooks have run. After
// an in-place write, it is the gradient of the new values. Does nothing for a leaf.
void retain_grad(const Tensor& tensor);

}  // namespace coshard
#pragma GCC visibility pop
