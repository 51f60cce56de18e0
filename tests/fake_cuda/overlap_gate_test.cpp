// The gate against what moves data between devices: a schedule that it may choose there overlaps,
// by the order that streams and events leave; one that would not is refused.
#include "dtensor/ops/overlap_gate.h"
#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/nn/transformer.h>
#include <coshard/styles/parallelize.h>
#include "tests/fake_cuda/captured.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/support/fake_cuda/fake_nccl.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

struct Seen {
  int products = 0;     // of the first device
  bool beside = false;  // one of them and a transfer that neither precedes
};

Seen seen_in(const std::vector<FakeDriver::Ran>& runs) {
  const auto is_product = [](const FakeDriver::Ran& run) {
    return std::string_view(run.by.what).find("atmul") != std::string_view::npos;
  };
  Seen seen;
  for (const FakeDriver::Ran& product : runs) {
    if (product.by.device != 0 || !is_product(product)) continue;
    ++seen.products;
    for (const FakeDriver::Ran& other : runs)
      seen.beside = seen.beside || (other.by.device == 0 && other.by.stream != product.by.stream &&
                                    product.beside(other));
  }
  return seen;
}

using Runs = std::vector<FakeDriver::Ran>;

// A linear layer whose input is gathered, or whose result is reduced, on two devices.
Runs runs_of(const std::string& communicator, ScheduleKind kind, Overlap overlap) {
  WorldOptions options = test_options(2);
  options.communicator = communicator;
  run_ranks(options, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const bool gathers = kind == ScheduleKind::Gather;
    const Layout of_x(Shard(gathers ? 0 : 1)), of_weight(Shard(gathers ? 0 : 1));
    // More than 512 KiB, which `local` gathers shard by shard.
    const std::int64_t count = gathers ? 16'400 : 64;
    const Tensor rows = ramp(world, Shape{count, 8}, 0.5), square = ramp(world, Shape{8, 8}, 0.5);
    const Tensor x = distribute_tensor(rows, mesh, of_x);
    const Tensor weight = distribute_tensor(square, mesh, of_weight);
    x.to_vector();  // both are there
    weight.to_vector();
    if (world.rank() == 0) FakeDriver::get().keep_runs();
    std::optional<Placement> target;
    if (kind == ScheduleKind::Scatter) target = Shard(0);
    if (kind == ScheduleKind::Reduce) target = Replicate();
    const Tensor input = gathers ? x.redistribute(Replicate()).tensor() : x;
    Task<Tensor> layer = overlapped_linear(input, weight, Tensor(), target, overlap);
    const Tensor y = co_await std::move(layer);
    y.to_vector();
  });
  return FakeDriver::get().take_runs();
}

Seen run_layer(const std::string& communicator, ScheduleKind kind, Overlap overlap) {
  return seen_in(runs_of(communicator, kind, overlap));
}

void expect_overlap(const std::string& communicator, ScheduleKind kind) {
  SCOPED_TRACE(communicator + ", schedule " + std::to_string(static_cast<int>(kind)));
  const Seen plain = run_layer(communicator, kind, Overlap::Off);
  EXPECT_EQ(plain.products, 1);
  EXPECT_EQ(right_of(4, [&] { return run_layer(communicator, kind, Overlap::Off).beside; }), 0);
  const Seen overlapped = run_layer(communicator, kind, Overlap::Always);
  EXPECT_GT(overlapped.products, 1);
  // A host that sees a transfer end before it launches a product has ordered them, which a loaded
  // machine does to most runs: one that shows the overlap proves that the schedule permits it.
  bool beside = overlapped.beside;
  for (std::uint64_t seed = 1; seed <= 200 && !beside; ++seed) {
    FakeDriver::get().reseed(seed);
    beside = run_layer(communicator, kind, Overlap::Always).beside;
  }
  EXPECT_TRUE(beside);
}

TEST(OverlapGate, ChoosesWhatOverlapsBetweenDevices) {
  for (const ScheduleKind kind :
       {ScheduleKind::Gather, ScheduleKind::Scatter, ScheduleKind::Reduce})
    expect_overlap("local", kind);
  expect_overlap("nccl", ScheduleKind::Scatter);
  expect_overlap("nccl", ScheduleKind::Reduce);
}

TEST(OverlapGate, RefusesToComputeByShardsThatArriveTogether) {
  const Seen seen = run_layer("nccl", ScheduleKind::Gather, Overlap::Always);
  EXPECT_EQ(seen.products, 1);
}

// A layer of 3 ranks whose input, 4 sequences of 48 rows, is sharded by rows: strided in the whole.
Runs runs_of_gathered_batch(bool by_shards) {
  constexpr int kRanks = 3;
  WorldOptions options = test_options(kRanks);
  options.communicator = "nccl";
  run_ranks(options, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {kRanks}, {"tp"});
    const Tensor rows = ramp(world, Shape{4, 48, 8}, 0.5), square = ramp(world, Shape{8, 8}, 0.5);
    const Tensor x = distribute_tensor(rows, mesh, Layout(Shard(1)));
    const Tensor weight = distribute_tensor(square, mesh, Layout(Shard(0)));
    const Tensor plain = linear(x.redistribute(Replicate()).tensor(), weight, Tensor());
    plain.to_vector();  // it is there
    if (world.rank() == 0) FakeDriver::get().keep_runs();
    world.communicator()->issue(Collective()).wait();
    const Redistribution input = redistribute(x, Replicate(), {.by_shards = by_shards});
    Task<Tensor> layer = overlapped_linear(input.tensor(), weight, Tensor());
    const Tensor y = co_await std::move(layer);
    EXPECT_EQ(y.to_vector(), plain.to_vector());
  });
  return FakeDriver::get().take_runs();
}

// Of the first device, whose name contains `what`.
Runs runs_called(const Runs& runs, std::string_view what) {
  Runs found;
  for (const FakeDriver::Ran& run : runs)
    if (run.by.device == 0 && std::string_view(run.by.what).find(what) != std::string_view::npos)
      found.push_back(run);
  std::ranges::sort(found, {}, [](const FakeDriver::Ran& run) { return run.by.number; });
  return found;
}

TEST(OverlapGate, TheFirstRemoteShardIsMultipliedBesideTheLastRound) {
  const Devices four(4);
  EXPECT_EQ(runs_called(runs_of_gathered_batch(false), "atmul").size(), 1U);
  bool beside = false;
  for (std::uint64_t seed = 1; seed <= 200 && !beside; ++seed) {
    FakeDriver::get().reseed(seed);
    const Runs runs = runs_of_gathered_batch(true);
    const Runs products = runs_called(runs, "atmul"), received = runs_called(runs, "ncclRecv");
    ASSERT_EQ(products.size(), 3U);
    ASSERT_EQ(received.size(), 2U);
    EXPECT_FALSE(products[1].beside(received[0])) << "it reads what that round brings";
    beside = products[1].beside(received[1]);
  }
  EXPECT_TRUE(beside);
}

// What a training step of a sequence-parallel transformer issues on rank 0.
struct Issued {
  int all_gathers = 0;  // calls that bring all shards together
  double loss = 0, gradient = 0;
};

Issued issued_by_a_step(int ranks, Overlap overlap, std::optional<Link> link) {
  WorldOptions options = test_options(ranks);
  options.communicator = "nccl";
  Issued issued;
  run_ranks(options, [&](World& world) -> Task<void> {
    DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
    if (link) mesh = mesh.with_links({*link});
    nn::TransformerConfig config;
    config.layers = 1, config.dim = 16, config.heads = config.kv_heads = 4;
    config.ffn = 24, config.vocab = 12, config.seq = 8;
    nn::Transformer model(config, world);
    const ParallelizeOptions how{.overlap = overlap};
    co_await parallelize_module(model, mesh, nn::transformer_plan(true), how);
    const std::vector<double> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6};
    const Tensor ids = Tensor::from_values(world.device(), Shape{2, 8}, DType::I64, tokens);
    world.device()->synchronize();
    take_fake_nccl_trace(world.rank());
    const Tensor logits = co_await model.forward(ids);
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, ids);
    co_await backward(loss);
    world.device()->synchronize();
    const std::string trace = take_fake_nccl_trace(world.rank());
    const double value = loss.item();
    Task<Tensor> norm = clip_grad_norm(model.parameters(), 1.0);
    const Tensor gradient = co_await std::move(norm);
    const double length = gradient.item();
    if (world.rank() != 0) co_return;
    issued = {0, value, length};
    constexpr std::string_view kCall = "ncclAllGather";
    for (auto at = trace.find(kCall); at != trace.npos; at = trace.find(kCall, at + 1))
      ++issued.all_gathers;
  });
  return issued;
}

TEST(OverlapGate, LayersAskForShardsWhereThatIsFaster) {
  const Devices four(4);
  for (const int ranks : {2, 4}) {
    const Issued plain = issued_by_a_step(ranks, Overlap::Off, std::nullopt);
    const Issued asks = issued_by_a_step(ranks, Overlap::Always, std::nullopt);
    // 3 inputs and 2 gradients; and the output of the embedding, which no layer multiplies.
    EXPECT_EQ(plain.all_gathers, 6) << ranks << " ranks";
    EXPECT_EQ(asks.all_gathers, 1) << ranks << " ranks";
    EXPECT_NEAR(asks.loss, plain.loss, 1e-5);
    EXPECT_NEAR(asks.gradient, plain.gradient, 1e-4);
    // A round takes a latency, which here is longer than all products.
    EXPECT_EQ(issued_by_a_step(ranks, Overlap::Auto, Link{1e5, 1e6}).all_gathers, 6);
    EXPECT_EQ(issued_by_a_step(ranks, Overlap::Auto, std::nullopt).all_gathers, 6);
  }
}

}  // namespace
}  // namespace coshard::testing
