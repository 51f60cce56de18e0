// An operator of the user's own with rule and gradient, and another rule for a built-in one.
#include "examples/own_operator/smooth_clip.h"

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(OwnOperator, WorksOnAnyLayoutWithItsGradient) {
  on_ranks(2, [](World& world) -> Task<void> {
    Tensor plain = random(world, {4, 3}).requires_grad_();
    const Tensor want = own::smooth_clip(plain, 0.7);
    co_await want.sum().backward();
    for (const Placement p : {Replicate(), Shard(0), Shard(1), Partial()}) {
      DTensor x = distribute_tensor(plain.detach(), line(world), p).requires_grad_();
      CountingObserver seen(world);
      const DTensor y = own::smooth_clip(x, 0.7);
      EXPECT_EQ(seen.total(), p.is_partial() ? 1 : 0);
      EXPECT_EQ(y.full_tensor().to_vector(), want.to_vector());
      co_await y.sum().backward();
      EXPECT_EQ(x.grad().full_tensor().to_vector(), plain.grad().to_vector()) << p;
    }
    EXPECT_THROW(own::smooth_clip(plain, -1), Error);
  });
}

TEST(OwnOperator, HasAGradientOfItsGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = full(world, {1}, 0.3, DType::F64, true);
    co_await backward(own::smooth_clip(x, 1), BackwardOptions{.create_graph = true});
    const Tensor first = x.grad();
    x.set_grad({});
    co_await first.backward();
    const double t = std::tanh(0.3);
    EXPECT_NEAR(first.item(), 1 - t * t, 1e-12);
    EXPECT_NEAR(x.grad().item(), -2 * t * (1 - t * t), 1e-12);
  });
}

OpDef without_rule() {
  OpDef op{.name = "lonely", .rule = nullptr, .infer = same_as_first};
  op.forward = [](OpContext& c) { c.out[0] = c.in[0].raw_local() + 1; };
  op.flops = no_flops;
  return op;
}

TEST(OwnOperator, WithoutARuleIsForPlainTensors) {
  on_ranks(1, [](World& world) -> Task<void> {
    static const OpDef op = without_rule();
    EXPECT_EQ(call1(op, {ones(world, {1})}).item(), 2);
    try {
      call1(op, {ones(line(world), {1})});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("lonely: it has no sharding rule"),
                std::string::npos);
    }
    co_return;
  });
}

Rule nothing_cut(std::span<const TensorInfo>, const Attrs&) {
  Rule rule;
  rule.in = {".."};
  rule.out = {"..", ".."};
  return rule;
}

TEST(RegisterSharding, ReplacesTheRuleOfABuiltInOperator) {
  on_ranks(2, [](World& world) -> Task<void> {
    register_sharding("sort", nothing_cut);
    const DTensor x = distribute_tensor(random(world, {4, 3}), line(world), Shard(0));
    CountingObserver seen(world);
    const ValuesAndIndices sorted = sort(x, 1);
    EXPECT_EQ(seen.count(CollectiveKind::AllGather), 1);
    EXPECT_EQ(sorted.values.layout(), Layout(Replicate()));
    co_return;
  });
  on_ranks(2, [](World& world) -> Task<void> {  // the next world has the operator's own
    const DTensor x = distribute_tensor(random(world, {4, 3}), line(world), Shard(0));
    EXPECT_EQ(sort(x, 1).values.layout(), Layout(Shard(0)));
    EXPECT_THROW(register_sharding("sort", nothing_cut), Error);  // it has been used
    EXPECT_THROW(register_sharding("no such operator", nothing_cut), Error);
    EXPECT_THROW(register_sharding("softmax", nullptr), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
