#include "dtensor/hooks.h"

#include "dtensor/tape.h"

namespace coshard {

void HookHandle::remove() {
  if (const std::shared_ptr<GradHook> hook = hook_.lock()) {
    hook->replace = nullptr;
    hook->accumulated = nullptr;
  }
}

HookHandle register_hook(const Tensor& tensor, std::function<Tensor(const Tensor& gradient)> hook) {
  CS_REQUIRE(tensor.defined() && tensor.requires_grad(), "register_hook: ", tensor,
             " requires no gradient");
  GradMeta& meta = *tensor.grad_meta();
  auto made = std::make_shared<GradHook>(GradHook{meta.output, std::move(hook), nullptr});
  (meta.producer ? meta.producer->hooks : meta.hooks).push_back(made);
  return HookHandle(made);
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook) {
  CS_REQUIRE(leaf.defined() && leaf.requires_grad() && leaf.is_leaf(),
             "register_post_accumulate_grad_hook: ", leaf, " is no leaf that requires a gradient");
  // The leaf keeps its hooks, not they it.
  auto made = std::make_shared<GradHook>();
  made->accumulated = [weak = Tensor::Weak(leaf), hook = std::move(hook)] {
    const Tensor tensor = weak.lock();
    if (tensor.defined()) hook(tensor);
  };
  leaf.grad_meta()->hooks.push_back(made);
  return HookHandle(made);
}

void retain_grad(const Tensor& tensor) {
  CS_REQUIRE(tensor.defined() && tensor.requires_grad(), "retain_grad: ", tensor,
             " requires no gradient");
  if (!tensor.is_leaf()) tensor.grad_meta()->producer->retaining.push_back(tensor.grad_meta());
}

}  // namespace coshard
