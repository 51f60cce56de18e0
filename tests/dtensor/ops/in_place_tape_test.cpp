#include <coshard/dtensor/ops/op.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using Forbid = ExplicitRedistribution::Forbid;

// What `f` throws as Error{BadInput}; "" when it does not.
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "";
  }
  return "";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

Task<void> keeps_layout(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const DTensor x = distribute_tensor(counting(world, {5, 3}), mesh, Shard(0), std::nullopt);
  const DTensor y = distribute_tensor(counting(world, {5, 3}), mesh, Shard(1), std::nullopt);
  const void* memory = x.data();
  const DTensor same = add_(x, y);
  EXPECT_EQ(same.id(), x.id());
  EXPECT_EQ(x.data(), memory);
  EXPECT_EQ(x.layout(), Layout(Shard(0)));
  EXPECT_EQ(full_tensor(x).to_vector(), counting(world, {5, 3}, DType::F64, 2).to_vector());
  co_return;
}
TEST(InPlaceOnTheTape, TheDestinationKeepsMemoryAndLayout) { on_ranks(2, keeps_layout); }

Task<void> in_a_graph(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  DTensor leaf = distribute_tensor(counting(world, {4}), mesh, Shard(0), std::nullopt);
  leaf.set_requires_grad(true);
  const DTensor h = mul(leaf, 3);
  mul_(h, leaf);  // 3 leaf^2
  co_await backward(sum(h));
  const DTensor gradient = leaf.grad();
  EXPECT_EQ(full_tensor(gradient).to_vector(), (std::vector<double>{6, 12, 18, 24}));
}
TEST(InPlaceOnTheTape, StandsForItsResultOnTheTape) { on_ranks(2, in_a_graph); }

Task<void> saved_and_changed(World& world) {
  Tensor leaf = counting(world, {4});
  leaf.set_requires_grad(true);
  const Tensor h = mul(leaf, 3);
  const Tensor square = mul(h, h);  // saves h
  mul_(h, 2);
  const std::string text = refusal([&] { run_backward(sum(square)); });
  EXPECT_TRUE(contains(text, "mul: ") && contains(text, "changed in place")) << text;
  co_return;
}
TEST(InPlaceOnTheTape, BackwardRefusesASavedTensorThatWasChanged) {
  on_ranks(1, saved_and_changed);
}

Task<void> changed_through_a_view(World& world) {
  Tensor leaf = counting(world, {4});
  leaf.set_requires_grad(true);
  const Tensor h = mul(leaf, 3);
  const Tensor rows = view(h, {2, 2});
  mul_(h, 2);
  run_backward(sum(mul(rows, rows)));  // (6x)^2
  EXPECT_EQ(leaf.grad().to_vector(), (std::vector<double>{72, 144, 216, 288}));
  co_return;
}
TEST(InPlaceOnTheTape, AViewGoesOnWithWhatItsBaseHasBecome) { on_ranks(1, changed_through_a_view); }

Task<void> refuses(World& world) {
  Tensor leaf = counting(world, {4});
  leaf.set_requires_grad(true);
  EXPECT_TRUE(contains(refusal([&] { mul_(leaf, 2); }), "leaf that requires a gradient"));
  const Tensor column = counting(world, {4, 1});
  const Tensor wide = counting(world, {4, 3});
  EXPECT_TRUE(
      contains(refusal([&] { add_(column, wide); }), "does not have the shape of f64[4,1]"));
  const Tensor whole = counting(world, {4}, DType::I64);
  EXPECT_TRUE(contains(refusal([&] { mul_(whole, 1.5); }), "mul"));
  co_return;
}
TEST(InPlaceOnTheTape, RefusesALeafABiggerShapeAndAFloatInAnInteger) { on_ranks(1, refuses); }

Task<void> forbidden_scope(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const CountingObserver seen(world);
  const DTensor a = distribute_tensor(counting(world, {4, 4}), mesh, Shard(0), std::nullopt);
  const DTensor r = distribute_tensor(counting(world, {4, 4}), mesh, Replicate(), std::nullopt);
  matmul(a, a);
  EXPECT_EQ(seen.total(), 1);
  {
    const ExplicitRedistribution scope;
    const std::string text = refusal([&] { matmul(a, a); });
    EXPECT_TRUE(contains(text, "matmul: ") && contains(text, "implicit redistribution of input"))
        << text;
    EXPECT_EQ(add(a, r).layout(), Layout(Shard(0)));  // cutting a replica is free
    const Redistribution explicit_one = a.redistribute(Replicate());
    EXPECT_EQ(explicit_one.tensor().layout(), Layout(Replicate()));
    {
      const ExplicitRedistribution any(Forbid::Any);
      EXPECT_TRUE(contains(refusal([&] { add(a, r); }), "from R to S(0)"));
      const ExplicitRedistribution off(Forbid::Off);
      matmul(a, a);
    }
    EXPECT_TRUE(contains(refusal([&] { matmul(a, a); }), "implicit"));
  }
  matmul(a, a);
  EXPECT_EQ(seen.total(), 4);
  co_return;
}
TEST(ExplicitRedistribution, ForbidsWhatAnOperatorWouldCommunicate) {
  on_ranks(2, forbidden_scope);
}

Task<void> forbidden_backward(World& world) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  DTensor a = distribute_tensor(counting(world, {4, 4}), mesh, Replicate(), std::nullopt);
  DTensor b = distribute_tensor(counting(world, {4, 4}), mesh, Shard(1), std::nullopt);
  a.set_requires_grad(true);
  const DTensor y = matmul(a, b);  // S(1)
  const Tensor rows = distribute_tensor(counting(world, {4, 4}), mesh, Shard(0), std::nullopt);
  const ExplicitRedistribution scope;
  EXPECT_TRUE(contains(refusal([&] { run_backward(y, rows); }), "implicit redistribution"));
  co_return;
}
TEST(ExplicitRedistribution, HoldsInBackward) { on_ranks(2, forbidden_backward); }

}  // namespace
}  // namespace coshard
