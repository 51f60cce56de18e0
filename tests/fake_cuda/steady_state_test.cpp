// In steady state a training step makes no host waits, creates no streams and frees no memory; an
// operator allocates nothing on the host.
#include <barrier>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/nn/transformer.h>
#include <coshard/styles/parallelize.h>
#include "dtensor/tape/grad_mode.h"
#include "kernels/cuda/lt_api.h"
#include "runtime/device/cuda/api.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/runtime/coro/allocations.h"
#include "tests/support/device.h"
#include "tests/support/fake_cuda/null_driver.h"

namespace coshard::testing {
namespace {

struct Counts {
  std::uint64_t waits = 0, setups = 0, host_waits = 0;
};

constexpr int kSettling = 3, kSteadySteps = 6;

Task<void> train_steps(World& world, bool sequence_parallel, std::barrier<>& all, Counts& counts) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  nn::TransformerConfig config;
  config.layers = 1;
  config.dim = 16;
  config.heads = 2;
  config.kv_heads = 2;
  config.ffn = 24;
  config.vocab = 10;
  config.seq = 8;
  nn::Transformer model(config, world);
  co_await parallelize_module(model, mesh, nn::transformer_plan(sequence_parallel));
  AdamW optimizer(model.parameters(), {.lr = 1e-3});
  const std::vector<double> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6};
  std::uint64_t waits_before = 0;
  for (int step = 0; step < kSettling + kSteadySteps; ++step) {
    if (step == kSettling) {
      world.device()->synchronize();
      all.arrive_and_wait();
      if (world.rank() == 0) FakeDriver::get().reset_counts();
      all.arrive_and_wait();
      waits_before = world.device()->host_waits();
    }
    const Tensor ids = Tensor::from_values(world.device(), Shape{2, 8}, DType::I64, tokens);
    const Tensor logits = co_await model.forward(ids);
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, ids);
    co_await backward(loss);
    Task<Tensor> clip = clip_grad_norm(optimizer.parameters(), 1.0);
    co_await std::move(clip);
    co_await optimizer.step();
    optimizer.zero_grad();
  }
  all.arrive_and_wait();
  if (world.rank() != 0) co_return;
  counts.waits = FakeDriver::get().synchronisations();
  for (const char* call : {"Malloc", "MemPoolTrimTo", "StreamCreateWithPriority"})
    counts.setups += FakeDriver::get().calls(call);
  counts.host_waits = world.device()->host_waits() - waits_before;
}

class SteadyState : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(SteadyState, ATrainingStepMakesTheHostWaitForNothing) {
  const auto [ranks, sequence_parallel] = GetParam();
  std::barrier all(ranks);
  Counts counts;
  const Program program = [&, cut = sequence_parallel](World& world) {
    return train_steps(world, cut, all, counts);
  };
  run_ranks(test_options(ranks), program);
  EXPECT_EQ(counts.waits, 0U);
  EXPECT_EQ(counts.host_waits, 0U);
  EXPECT_EQ(counts.setups, 0U);
}

struct NullDriver {
  NullDriver() { install_null_driver(); }
  ~NullDriver() {
    use_cuda(&before);
    use_cublas_lt(&products_before);
  }
  const CudaApi& before = cuda();
  const CublasLtApi& products_before = cublas_lt();
};

Task<void> count_allocations(World& world, long& counted) {
  const NoGradGuard no_grad;
  const Tensor a = full(world.device(), Shape{16, 16}, 1), b = full(world.device(), Shape{16}, 2);
  const Tensor w = full(world.device(), Shape{16, 16}, 3);
  long before = 0;
  for (int i = 0; i < 200; ++i) {
    if (i == 100) before = testing::allocations();
    const Tensor y = mul(add(a, b), 2.0);
    const Tensor z = matmul(y, w);
    world.device()->compute_stream().record();
  }
  counted = testing::allocations() - before;
  co_return;
}

// On the null driver, since the fake driver itself allocates.
TEST(HostCost, AnOperatorAllocatesNothingOnTheHost) {
  if (!testing::kCountsAllocations) GTEST_SKIP();
  const NullDriver driver;
  WorldOptions options;
  options.ranks = 1;
  options.device = DeviceKind::Cuda;
  long counted = -1;
  const Program program = [&](World& world) { return count_allocations(world, counted); };
  run_ranks(options, program);
  EXPECT_EQ(counted, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SteadyState,
                         ::testing::Values(std::tuple(1, false), std::tuple(2, false),
                                           std::tuple(2, true)));

}  // namespace
}  // namespace coshard::testing
