// Hooks of tensors and leaves, and retain_grad.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing {
namespace {

TEST(Hooks, AreThere) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    EXPECT_EQ(refusal_of([&] { register_hook(x, nullptr); }),
              "register_hook: the hook is an empty function");
    EXPECT_EQ(refusal_of([&] { register_post_accumulate_grad_hook(x, nullptr); }),
              "register_post_accumulate_grad_hook: the hook is an empty function");
    co_return;
  });
}

TEST(Hooks, SeeTheCompleteGradientOnce) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    const Tensor h = x * 2.0;
    std::vector<Values> of_leaf, of_inner;
    register_hook(x, [&](const Tensor& g) {
      of_leaf.push_back(g.to_vector());
      return Tensor();
    });
    HookHandle inner = register_hook(h, [&](const Tensor& g) {
      of_inner.push_back(g.to_vector());
      return g * 10.0;
    });
    const Tensor loss = sum(h * h) + sum(h) + sum(x);
    run_backward(loss, BackwardOptions{.retain_graph = true});
    EXPECT_EQ(of_inner, (std::vector<Values>{{5, 9}}));
    EXPECT_EQ(of_leaf, (std::vector<Values>{{101, 181}}));
    EXPECT_EQ(x.grad().to_vector(), (Values{101, 181}));
    inner.remove();
    run_backward(loss);
    EXPECT_EQ(of_inner.size(), 1u);
    EXPECT_EQ(of_leaf.back(), (Values{11, 19}));
    EXPECT_EQ(x.grad().to_vector(), (Values{112, 200}));
    EXPECT_NE(refusal_of([&] { register_hook(counting(world, {2}), nullptr); }), "");
    co_return;
  });
}

TEST(Hooks, OfALeafMayReplaceItsGradientAndFollowItsSum) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor w = distribute_tensor(counting(world, {2, 2}), mesh, Replicate());
    w.set_requires_grad(true);
    const DTensor x = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));
    register_hook(w, [](const Tensor& g) { return g * 3.0; });
    int calls = 0;
    register_post_accumulate_grad_hook(w, [&](const Tensor& leaf) {
      ++calls;
      EXPECT_EQ(leaf.id(), w.id());
      leaf.set_grad(redistribute(leaf.grad(), leaf.layout()).tensor());
    });
    for (int turn = 1; turn <= 2; ++turn) {
      const DTensor y = linear(linear(x, w), w);
      co_await backward(sum(y));
      EXPECT_EQ(calls, turn);
      EXPECT_EQ(w.grad().layout(), w.layout());
    }
    const std::vector<Tensor> outputs{sum(linear(linear(x, w.detach()), w))}, inputs{w};
    EXPECT_FALSE(
        refusal_of([&] { register_post_accumulate_grad_hook(outputs[0], nullptr); }).empty());
    w.set_grad({});
    const std::vector<Tensor> hooked = co_await grad(outputs, inputs);
    EXPECT_EQ(calls, 2);
    EXPECT_FALSE(w.grad().defined());
  });
}

TEST(Hooks, RetainGradKeepsAnInnerGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    const Tensor h = x * 2.0;
    retain_grad(h);
    retain_grad(x);
    run_backward(sum(h * h) + sum(h));
    EXPECT_EQ(h.grad().to_vector(), (Values{5, 9}));
    mul_(h.grad(), 0.0);
    EXPECT_EQ(x.grad().to_vector(), (Values{10, 18}));
    EXPECT_NE(refusal_of([&] { retain_grad(counting(world, {2})); }), "");
    co_return;
  });
}

TEST(Hooks, MayRemoveThemselves) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    const Tensor h = x * 2.0;
    int calls = 0;
    std::vector<HookHandle> handles(3);
    const std::string kept(100, 'k');  // goes with the hook, which goes on
    handles[0] = register_hook(x, [&, kept](const Tensor& g) {
      handles[0].remove();
      calls += static_cast<int>(kept.size());
      return g * 10.0;
    });
    handles[1] = register_hook(h, [&, kept](const Tensor&) {
      handles[1].remove();
      calls += static_cast<int>(kept.size());
      return Tensor();
    });
    handles[2] = register_post_accumulate_grad_hook(x, [&, kept](const Tensor&) {
      handles[2].remove();
      calls += static_cast<int>(kept.size());
    });
    run_backward(sum(h), BackwardOptions{.retain_graph = true});
    run_backward(sum(h));
    EXPECT_EQ(calls, 300);
    EXPECT_EQ(x.grad().to_vector(), (Values{22, 22}));
    co_return;
  });
}

TEST(Hooks, ThatWereRemovedLeaveNothingBehind) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    for (int i = 0; i < 100; ++i) register_hook(x, [](const Tensor& g) { return g; }).remove();
    EXPECT_LE(x.grad_meta()->hooks.size(), 1U);
    co_return;
  });
}

TEST(Hooks, GiveAGradientLikeTheOneTheyGot) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const auto refused = [&](const Tensor& x, auto hook) {
      const HookHandle handle = register_hook(x, hook);
      const std::string text = refusal_of([&] { run_backward(sum(x * x)); });
      HookHandle(handle).remove();
      return text;
    };
    const Tensor x = leaf_of(world, {2});
    EXPECT_TRUE(says(refused(x, [](const Tensor& g) { return to(g, DType::F32); }), "f32[2]"));
    DTensor d = distribute_tensor(counting(world, {4}), mesh, Replicate());
    d.set_requires_grad(true);
    EXPECT_TRUE(says(refused(d, [](const Tensor& g) { return to_local(g); }), "for gradient"));
    EXPECT_FALSE(x.grad().defined() || d.grad().defined());
    // Another layout is brought to the leaf's.
    register_hook(d, [](const Tensor& g) { return g.redistribute(Shard(0)).tensor(); });
    run_backward(sum(d * d));
    EXPECT_TRUE(d.grad().layout().is_replicate());
    EXPECT_EQ(d.grad().to_vector(), (Values{2, 4, 6, 8}));
    co_return;
  });
}

TEST(Hooks, DoNotWriteToAGradientThatOthersRead) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    const Tensor given = ones(world.device(), {2}, DType::F64);
    register_hook(x, [](const Tensor& g) { return mul_(g, 10.0); });
    EXPECT_TRUE(
        says(refusal_of([&] { run_backward(view(x, {2}), given); }), "other operators may read"));
    EXPECT_EQ(mul_(given, 1.0).to_vector(), (Values{1, 1}));
    co_return;
  });
}

TEST(Hooks, RetainGradCountsOnceAndGoesOnAfterAWrite) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2, 2});
    const Tensor h = x * 2.0, row = select(h, 0, 0), end = select(h, 0, 1);
    for (const Tensor& t : {h, h, row}) retain_grad(t);
    mul_(end, 3.0);  // through a view
    mul_(h, 4.0);
    run_backward(sum(h * 5.0) + sum(row));
    EXPECT_EQ(h.grad().to_vector(), (Values{6, 6, 5, 5}));
    EXPECT_EQ(row.grad().to_vector(), (Values{1, 1}));
    EXPECT_EQ(x.grad().to_vector(), (Values{48, 48, 120, 120}));
    co_return;
  });
}

// The view is a tensor of its own, so that other uses of x do not pass the hook.
void expect_own_hooks(const Tensor& x, const char* name, Tensor (*view_of_all)(const Tensor&)) {
  SCOPED_TRACE(str_cat(name, " of ", describe(x)));
  x.set_grad(Tensor());
  const Tensor m = x * 1.0;
  const Tensor all = view_of_all(m);
  EXPECT_EQ(describe(all), describe(m));
  register_hook(all, [](const Tensor& g) { return g * 0.5; });
  run_backward(sum(all) + sum(m));
  for (const double g : x.grad().to_vector()) EXPECT_EQ(g, 1.5);
}

void expect_own_hooks(const Tensor& x) {
  expect_own_hooks(x, "narrow", [](const Tensor& t) { return narrow(t, 0, 0, t.size(0)); });
  expect_own_hooks(x, "slice", [](const Tensor& t) { return slice(t, 0, 0, 99); });
  expect_own_hooks(x, "chunk", [](const Tensor& t) { return chunk(t, 1, 1)[0]; });
  expect_own_hooks(x, "split", [](const Tensor& t) { return split(t, t.size(1), 1)[0]; });
  expect_own_hooks(x, "expand", [](const Tensor& t) { return expand(t, t.shape()); });
  expect_own_hooks(x, "squeeze", [](const Tensor& t) { return squeeze(t); });
  expect_own_hooks(x, "squeeze 0", [](const Tensor& t) { return squeeze(t, 0); });
}

TEST(Hooks, OfAViewOfEverythingAreItsOwn) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    expect_own_hooks(leaf_of(world, {2, 3}));
    for (const Placement p : {Placement(Replicate()), Placement(Partial())})
      expect_own_hooks(distribute_tensor(counting(world, {2, 3}), mesh, p, std::nullopt)
                           .set_requires_grad(true));
    const Tensor plain = counting(world, {2, 3});
    EXPECT_EQ(narrow(plain, 0, 0, 2).id(), plain.id());  // nothing to differentiate
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
