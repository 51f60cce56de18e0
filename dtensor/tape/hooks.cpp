#include <coshard/dtensor/tape/hooks.h>

#include <algorithm>

#include <coshard/dtensor/tape/tape.h>
#include "dtensor/tensor/copied_view.h"

namespace coshard {

void HookHandle::remove() {
  if (const std::shared_ptr<GradHook> hook = hook_.lock()) {
    hook->replace = nullptr;
    hook->accumulated = nullptr;
  }
}

namespace {

template <class F>
auto shared(F function) {
  return std::make_shared<const F>(std::move(function));
}

HookHandle put(GradHooks& hooks, GradHook hook) {
  std::erase_if(hooks, [](const auto& known) { return !known->replace && !known->accumulated; });
  hooks.push_back(std::make_shared<GradHook>(std::move(hook)));
  return HookHandle(hooks.back());
}

// A tensor that may be another one, on one device, has no hooks of its own.
void require_itself(const Tensor& tensor, std::string_view who) {
  CS_REQUIRE(
      !tensor.copied_view() || !tensor.copied_view()->may_be_itself || tensor.base().defined(), who,
      ": ", tensor, " was made by contiguous() from ", tensor.copied_view()->of,
      ", which it is if strides allow it that from_local was not told; give it `stride`");
}

}  // namespace

HookHandle register_hook(const Tensor& tensor, std::function<Tensor(const Tensor& gradient)> hook) {
  CS_REQUIRE(hook, "register_hook: the hook is an empty function");
  catch_up_with_writes({&tensor, 1});
  CS_REQUIRE(tensor.defined() && tensor.requires_grad(), "register_hook: ", tensor,
             " does not require a gradient");
  require_itself(tensor, "register_hook");
  GradMeta& meta = *tensor.grad_meta();
  return put(meta.producer ? meta.producer->hooks : meta.hooks,
             {meta.output, shared(std::move(hook)), nullptr});
}

HookHandle register_post_accumulate_grad_hook(const Tensor& leaf,
                                              std::function<void(const Tensor& leaf)> hook) {
  CS_REQUIRE(hook, "register_post_accumulate_grad_hook: the hook is an empty function");
  CS_REQUIRE(leaf.defined() && leaf.requires_grad() && leaf.is_leaf(),
             "register_post_accumulate_grad_hook: ", leaf,
             " is not a leaf that requires a gradient");
  // The leaf owns its hooks, so they hold it weakly.
  const std::function<void()> told = [weak = Tensor::Weak(leaf), hook = std::move(hook)] {
    const Tensor tensor = weak.lock();
    if (tensor.defined()) hook(tensor);
  };
  return put(leaf.grad_meta()->hooks, {0, nullptr, shared(told)});
}

void retain_grad(const Tensor& tensor) {
  catch_up_with_writes({&tensor, 1});
  CS_REQUIRE(tensor.defined() && tensor.requires_grad(), "retain_grad: ", tensor,
             " does not require a gradient");
  require_itself(tensor, "retain_grad");
  if (tensor.is_leaf()) return;
  auto& retaining = tensor.grad_meta()->producer->retaining;
  const bool known = std::ranges::any_of(
      retaining, [&](const auto& meta) { return meta.lock() == tensor.grad_meta(); });
  if (!known) retaining.push_back(tensor.grad_meta());
}

}  // namespace coshard
