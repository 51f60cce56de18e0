// Ranks that end while a queued step waits for a peer, eager and captured; misused captured steps.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include <coshard/dtensor/capture/capture.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class EndsOfSteps : public ::testing::TestWithParam<bool> {};

WorldOptions options_of(int timeout_ms) {
  WorldOptions options;
  options.ranks = 2;
  options.threads = 1;
  options.device = DeviceKind::Cuda;
  options.communicator = "nccl";
  options.timeout = milliseconds(timeout_ms);
  return options;
}

// Rank 1 queues three steps, reads nothing, and throws; rank 0 is `late` for the third.
Task<void> unread(World& world, bool captured, microseconds late) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"dp"});
  const Tensor w = ones(world.device(), {4});
  const auto body = [&]() -> Task<Tensor> {
    const DTensor x = from_local(w, mesh, Layout(Partial()));
    const DTensor y = co_await x.redistribute(Replicate());
    co_return sum(y.raw_local());
  };
  const CapturedStep step = capture(body);
  for (int i = 0; i < 3; ++i) {
    if (i == 2 && world.rank() == 0) std::this_thread::sleep_for(late);
    Task<Tensor> call = captured ? step() : body();
    co_await std::move(call);
  }
  if (world.rank() == 1) throw std::runtime_error("no more paper");
}

TEST_P(EndsOfSteps, ARankThatThrowsEndsAllAtOnceWithItsCause) {
  FakeDriver::get().set_devices(2);
  const std::uint64_t first = FakeDriver::get().draw();
  for (int turn = 0; turn < 30; ++turn) {
    FakeDriver::get().reseed(first + static_cast<std::uint64_t>(turn));
    const microseconds late(turn % 15 * 100);
    const auto program = [late](World& world) { return unread(world, GetParam(), late); };
    const auto begin = Clock::now();
    std::string text;
    try {
      run_ranks(options_of(4000), program);
    } catch (const std::exception& error) {
      text = error.what();
    }
    ASSERT_LT(Clock::now() - begin, milliseconds(4000)) << "turn " << turn;
    EXPECT_NE(text.find("no more paper"), std::string::npos) << text;
    ASSERT_EQ(FakeDriver::get().take_complaints(), std::vector<std::string>()) << "turn " << turn;
  }
}

INSTANTIATE_TEST_SUITE_P(Nccl, EndsOfSteps, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "captured" : "eager");
});

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CapturedStep, OfNoBodyIsAnErrorThatSaysSo) {
  EXPECT_EQ(text_of([] { capture(StepBody()); }), "capture: the body is an empty function");
  EXPECT_EQ(text_of([] { capture(std::function<Task<Tensor>()>()); }),
            "capture: the body is an empty function");
  const CapturedStep step;
  EXPECT_FALSE(step.recorded());
  WorldOptions options = options_of(4000);
  options.ranks = 1;
  const auto program = [&step](World&) -> Task<void> {
    Task<Tensor> call = step();
    co_await std::move(call);
  };
  const std::string text = text_of([&] { run_ranks(options, program); });
  EXPECT_NE(text.find("captured step: undefined"), std::string::npos) << text;
}

// With the same error, whatever the inner step's state.
TEST(CapturedStep, WithinAnotherIsRefusedAlike) {
  for (const int eager_steps : {1, 2, 3, 9}) {
    WorldOptions options = options_of(4000);
    options.ranks = 1;
    const auto program = [eager_steps](World& world) -> Task<void> {
      const Tensor w = ones(world.device(), {4});
      const CapturedStep inner =
          capture([&]() -> Task<Tensor> { co_return sum(w); }, {.eager_steps = eager_steps});
      const CapturedStep outer = capture([&]() -> Task<Tensor> {
        Task<Tensor> call = inner();
        Tensor result = co_await std::move(call);
        co_return result;
      });
      for (int i = 0; i < 2; ++i) {
        Task<Tensor> call = outer();
        co_await std::move(call);
      }
    };
    const std::string text = text_of([&] { run_ranks(options, program); });
    EXPECT_NE(text.find("called while another captured step"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace coshard::testing
