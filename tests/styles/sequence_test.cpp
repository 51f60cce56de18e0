#include <coshard/styles/sequence.h>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// A97 for one module with weights of any number; every gradient stays Partial and sums to the
// reference.
Task<void> expect_no_communication(World& world, Module& plain, Module& module) {
  const DeviceMesh mesh = line(world);
  CountingObserver counter(world);
  co_await parallelize_module(module, mesh, SequenceParallel{});
  EXPECT_EQ(take(counter), Issued{});
  const Tensor x = random(world, Shape{5, 8 * world.size(), 12});
  const Counted got = co_await run_counted(world, module, part(world, x, 1));
  EXPECT_EQ(got.forward, Issued{});
  EXPECT_EQ(got.backward, Issued{});
  EXPECT_EQ(got.output.layout(), Layout(Shard(1)));
  const Counted want = co_await run_counted(world, plain, x.detach());
  expect_close(got.output, want.output);
  expect_close(from_local(got.input_grad, mesh, Shard(1)), want.input_grad);
  for (const NamedParameter& p : module.named_parameters()) {
    EXPECT_EQ(p.slot->layout(), Layout(Replicate())) << p.name;
    EXPECT_EQ(p.slot->grad().layout(), Layout(Partial())) << p.name;
    expect_close(p.slot->grad(), plain.parameter(p.name).grad());
  }
}

TEST(SequenceParallel, NormsNeedNoCommunicationAndLeaveTheirGradientsPartial) {
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, norm] = twins<nn::LayerNorm>(12, world, nn::LayerNormOptions{.dtype = DType::F64});
    co_await expect_no_communication(world, *plain, *norm);
    auto [plain_rms, rms] = twins<nn::RMSNorm>(12, world, nn::RMSNormOptions{.dtype = DType::F64});
    co_await expect_no_communication(world, *plain_rms, *rms);
    const nn::LayerNormOptions bare{.affine = false, .dtype = DType::F64};
    auto [plain_bare, without] = twins<nn::LayerNorm>(12, world, bare);
    co_await expect_no_communication(world, *plain_bare, *without);
  });
}

TEST(SequenceParallel, DropoutDropsWhatOneDeviceWouldDrop) {
  on_ranks(4, [](World& world) -> Task<void> {
    nn::Dropout plain(0.5), dropout(0.5);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(dropout, mesh, SequenceParallel{});
    const Tensor x = random(world, Shape{3, 8, 6});
    manual_seed(3);
    const Tensor y = co_await dropout.forward(part(world, x, 1));
    manual_seed(3);
    const Tensor want = co_await plain.forward(x);
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
    expect_close(y, want, 0);
  });
}

TEST(SequenceParallel, RedistributesADTensorThatLiesOtherwise) {  // A98
  on_ranks(4, [](World& world) -> Task<void> {
    nn::LayerNorm norm(12, world, {.dtype = DType::F64});
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(norm, mesh, SequenceParallel{});
    const Tensor x = random(world, Shape{8, 8, 12});
    const DTensor rows = distribute_tensor(x, mesh, Shard(0));
    const Counted got = co_await run_counted(world, norm, rows);
    EXPECT_EQ(got.output.layout(), Layout(Shard(1)));
    EXPECT_EQ(got.forward, Issued{.other = 1});
    EXPECT_EQ(got.backward, Issued{.other = 1});
  });
}

TEST(SequenceParallel, TakesAnotherDimensionAndGivesALocalTensor) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::LayerNorm norm(6, world, {.dtype = DType::F64});
    const DeviceMesh mesh = line(world);
    const SequenceParallel style{.sequence_dim = 0, .use_local_output = true};
    co_await parallelize_module(norm, mesh, style);
    const Tensor x = random(world, Shape{4, 6});
    const Tensor y = co_await norm.forward(part(world, x, 0));
    EXPECT_FALSE(y.is_distributed());
    EXPECT_EQ(y.shape(), (Shape{2, 6}));
    EXPECT_EQ(cat(style), "SequenceParallel(sequence_dim=0, use_local_output=true)");
  });
}

TEST(SequenceParallel, RefusesACallWithoutATensor) {  // A99
  on_ranks(2, [](World& world) -> Task<void> {
    nn::LayerNorm norm(6, world);
    const DeviceMesh mesh = line(world);
    co_await parallelize_module(norm, mesh, SequenceParallel{});
    Inputs none{Tensor()};
    const std::string text = co_await error_of(discard(norm.call(none)));
    EXPECT_CONTAINS(text, "LayerNorm");
  });
}

TEST(SequenceParallel, AppliedByItselfKeepsTiedParametersTied) {
  on_ranks(2, [](World& world) -> Task<void> {
    struct TwoNorms : Module {
      explicit TwoNorms(World& world) : first(4, world), second(4, world) {
        register_module("first", first);
        register_module("second", second);
        second.weight = first.weight;
      }
      nn::RMSNorm first, second;
    } norms(world);
    SequenceParallel{}.apply(norms, line(world), {});
    EXPECT_TRUE(norms.first.weight.is_distributed());
    EXPECT_EQ(norms.first.weight.id(), norms.second.weight.id());
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
