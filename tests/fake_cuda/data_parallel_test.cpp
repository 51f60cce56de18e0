// Gradients sent during backward, on devices: in captured as in eager steps, without host waits.
#include <coshard/dtensor/optim/data_parallel.h>

#include <barrier>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/capture/capture.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include "tests/fake_cuda/captured.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

struct Net {
  explicit Net(World& world) {
    for (int i = 0; i < 3; ++i) {
      w.push_back(ramp(world, Shape{4, 4}, 0.1 * i - 0.4));
      w.back().set_requires_grad(true);
    }
  }
  Tensor loss(const Tensor& x) const {
    Tensor y = x;
    for (const Tensor& one : w) y = relu(linear(y, one));
    return mean(mul(y, y));
  }
  std::vector<Tensor> w;
};

// The losses, and the parameters after them.
Task<Doubles> trained(World& world, bool captured, bool buckets) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const Net net(world);
  AdamW optimizer(net.w, {.lr = 0.1});
  std::optional<DataParallel> parallel;
  if (buckets) parallel.emplace(net.w, mesh, 0, DataParallelOptions{.bucket_bytes = 64});
  const auto body = [&](std::vector<Tensor> in) -> Task<Tensor> {
    optimizer.zero_grad();
    Tensor loss = net.loss(in[0]);
    co_await backward(loss);
    if (!buckets) all_reduce_gradients(net.w, mesh, 0, Reduce::Avg);
    Task<Tensor> clip = clip_grad_norm(net.w, 0.5);
    co_await std::move(clip);
    co_await optimizer.step();
    co_return loss;
  };
  const CapturedStep step = capture(body);
  Doubles all;
  for (int i = 0; i < 5; ++i) {
    const std::vector<Tensor> in = {ramp(world, Shape{2, 4}, i + world.rank())};
    Task<Tensor> call = captured ? step(in) : body(in);
    const Tensor loss = co_await std::move(call);
    all.push_back(loss.item());
  }
  EXPECT_EQ(step.recorded(), captured);
  for (const Tensor& w : net.w)
    for (const double value : w.detach().to_vector()) all.push_back(value);
  co_return all;
}

TEST(DataParallelOnDevices, IsTheSameEagerAndCapturedAndAfterBackward) {
  WorldOptions options = test_options(2);
  options.communicator = "nccl";
  options.timeout = std::chrono::seconds(60);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    FakeDriver::get().reseed(seed);
    const Program program = [](World& world) -> Task<void> {
      const Doubles after = co_await trained(world, false, false);
      const Doubles eager = co_await trained(world, false, true);
      const Doubles captured = co_await trained(world, true, true);
      EXPECT_EQ(eager, after);
      EXPECT_EQ(captured, after);
    };
    run_ranks(options, program);
  }
}

TEST(DataParallelOnDevices, RefusesToAllocateItsBucketsInACapturedStep) {
  WorldOptions options = test_options(2);
  options.communicator = "nccl";
  options.timeout = std::chrono::seconds(60);
  const Program program = [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
    const Net net(world);
    const DataParallel parallel(net.w, mesh, 0);
    const Tensor x = ramp(world, Shape{2, 4});
    bool records = false;
    const auto body = [&]() -> Task<Tensor> {
      Tensor loss = net.loss(x);
      if (records) co_await backward(loss);
      co_return loss;
    };
    const CapturedStep step = capture(body);
    Task<Tensor> eager = step();
    co_await std::move(eager);
    records = true;
    std::string text;
    try {
      Task<Tensor> recorded = step();
      co_await std::move(recorded);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
      text = error.what();
    }
    EXPECT_NE(text.find("DataParallel: cannot allocate the gradients within a captured step"),
              std::string::npos)
        << text;
  };
  run_ranks(options, program);
}

// The complaint about a step that skips one event wait; "" if there is none.
std::string race_without(int wait) {
  WorldOptions options = test_options(2);
  options.communicator = "nccl";
  Fault fault;
  fault.call = "StreamWaitEvent";
  fault.after = wait;
  fault.skipped = true;
  FakeDriver::get().set_fault(fault);
  const Program program = [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
    const Net net(world);
    AdamW optimizer(net.w, {.lr = 0.1});
    const DataParallel parallel(net.w, mesh, 0, {.bucket_bytes = 64});
    co_await backward(net.loss(ramp(world, Shape{2, 4}, world.rank())));
    co_await optimizer.step();
    world.device()->synchronize();
  };
  run_ranks(options, program);
  FakeDriver::get().clear_faults();
  const auto said = FakeDriver::get().take_complaints();
  return said.empty() ? "" : said[0];
}

TEST(DataParallelOnDevices, AWaitThatAStepLacksIsNamed) {
  int reads = 0, writes = 0;
  for (int wait = 0; wait < 16; ++wait) {
    const std::string text = race_without(wait);
    if (text.empty()) continue;  // another wait has the same effect
    EXPECT_TRUE(text.starts_with("race: ")) << text;
    EXPECT_NE(text.find("ncclAllReduce"), std::string::npos) << text;
    (text.find(" reads bytes [") != std::string::npos ? reads : writes) += 1;
  }
  EXPECT_GT(reads, 0);
  EXPECT_GT(reads + writes, 4);
}

struct Waits {
  std::uint64_t driver = 0, host = 0;
};

Task<void> count_waits(World& world, std::barrier<>& all, Waits& waits) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const Net net(world);
  AdamW optimizer(net.w, {.lr = 0.1});
  const DataParallel parallel(net.w, mesh, 0, {.bucket_bytes = 64});
  std::uint64_t before = 0;
  for (int step = 0; step < 9; ++step) {
    if (step == 3) {
      world.device()->synchronize();
      all.arrive_and_wait();
      if (world.rank() == 0) FakeDriver::get().reset_counts();
      all.arrive_and_wait();
      before = world.device()->host_waits();
    }
    const Tensor loss = net.loss(ramp(world, Shape{2, 4}, world.rank()));
    co_await backward(loss);
    Task<Tensor> clip = clip_grad_norm(net.w, 0.5);
    co_await std::move(clip);
    co_await optimizer.step();
    optimizer.zero_grad();
  }
  all.arrive_and_wait();
  if (world.rank() != 0) co_return;
  waits.driver = FakeDriver::get().synchronisations();
  waits.host = world.device()->host_waits() - before;
}

TEST(DataParallelOnDevices, MakesTheHostWaitForNothing) {
  std::barrier all(2);
  Waits waits;
  WorldOptions options = test_options(2);
  options.communicator = "nccl";
  const Program program = [&](World& world) { return count_waits(world, all, waits); };
  run_ranks(options, program);
  EXPECT_EQ(waits.driver, 0U);
  EXPECT_EQ(waits.host, 0U);
}

}  // namespace
}  // namespace coshard::testing
