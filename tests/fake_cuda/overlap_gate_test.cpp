// The gate against what moves data between devices: a schedule that it may choose there overlaps,
// by the order that streams and events leave; one that would not is refused.
#include "dtensor/ops/overlap_gate.h"
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/fake_cuda/captured.h"
#include "tests/fake_cuda/on_fake.h"
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

// A linear layer whose input is gathered, or whose result is reduced, on two devices.
Seen run_layer(const std::string& communicator, ScheduleKind kind, Overlap overlap) {
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
  return seen_in(FakeDriver::get().take_runs());
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

}  // namespace
}  // namespace coshard::testing
