// What of a device's and a program's state a captured step leans on, and what changes it between
// two calls.
#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/capture/capture.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/fake_cuda/captured.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

Task<std::string> text_of_failure(Task<Tensor> call) {
  try {
    co_await std::move(call);
  } catch (const Error& error) {
    co_return std::string(error.what());
  }
  co_return std::string();
}

TEST(CapturedStep, KeepsTheRotaryTableThatItReads) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = ramp(world, Shape{1, 5, 1, 8}, 1);
    const Doubles right = rotary_embedding(x, 100).to_vector();
    const CapturedStep step = capture(
        [&](std::vector<Tensor> in) -> Task<Tensor> { co_return rotary_embedding(in[0], 100); });
    for (int i = 0; i < 3; ++i) {
      Task<Tensor> call = step(x);
      const Tensor y = co_await std::move(call);
      EXPECT_EQ(y.to_vector(), right);
    }
    std::vector<Tensor> others;  // more tables than are cached
    for (int i = 0; i < 20; ++i) others.push_back(rotary_embedding(x, 200 + i));
    for (int i = 0; i < 20; ++i) others.push_back(ramp(world, Shape{256, 4, 2}));
    Task<Tensor> call = step(x);
    const Tensor y = co_await std::move(call);
    EXPECT_EQ(y.to_vector(), right);
  });
}

TEST(CapturedStep, LeavesNoUnwrittenRotaryTableWhenItIsGivenUp) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = ramp(world, Shape{1, 5, 1, 8}, 1);
    bool records = false;
    const CapturedStep step = capture([&](std::vector<Tensor> in) -> Task<Tensor> {
      Tensor y = in[0];
      if (records) {
        y = rotary_embedding(y, 300);
        y.to_vector();
      }
      co_return y;
    });
    for (int i = 0; i < 2; ++i) {
      Task<Tensor> call = step(x);
      Task<std::string> failure = text_of_failure(std::move(call));
      const std::string text = co_await std::move(failure);
      EXPECT_EQ(text.empty(), !records);
      records = true;
    }
    const Doubles now = rotary_embedding(x, 300).to_vector();
    std::vector<Tensor> others;
    for (int i = 0; i < 20; ++i) others.push_back(rotary_embedding(x, 200 + i));
    EXPECT_EQ(now, rotary_embedding(x, 300).to_vector());
  });
}

// A recording that fails must not leave gradients that nothing has computed.
TEST(CapturedStep, LeavesTheGradientsAsTheyWereWhenItIsGivenUp) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = parameter(world), x = ramp(world, Shape{2, 4}, 1);
    bool records = false;
    const CapturedStep step = capture([&](std::vector<Tensor> in) -> Task<Tensor> {
      w.set_grad(Tensor());
      Tensor loss = sum(mul(matmul(in[0], w), matmul(in[0], w)));
      co_await backward(loss);
      if (records) loss.item();
      w.set_grad(records ? w.grad() : Tensor());
      co_return loss;
    });
    for (int i = 0; i < 2; ++i) {
      Task<Tensor> call = step(x);
      Task<std::string> failure = text_of_failure(std::move(call));
      const std::string text = co_await std::move(failure);
      EXPECT_EQ(text.empty(), !records) << text;
      records = true;
    }
    EXPECT_FALSE(w.grad().defined());
    if (!w.grad().defined()) co_return;
    for (const double g : w.grad().to_vector()) EXPECT_EQ(g, g) << "never computed";
  });
}

// clip alone, of what an eager backward has left.
Task<Doubles> clipped(World& world, bool captured, std::string& refused) {
  const Tensor w = parameter(world);
  const auto body = [&]() -> Task<Tensor> { return clip_grad_norm({w}, 0.25); };
  const CapturedStep step = capture(body);
  Doubles all;
  std::vector<Tensor> held;
  for (int i = 0; i < 5; ++i) {
    w.set_grad(Tensor());
    held.push_back(ramp(world, Shape{4, 3}, i));
    Tensor loss = sum(mul(w, mul(w, ramp(world, Shape{4, 3}, i))));
    co_await backward(loss);
    Task<Tensor> call = captured ? step() : body();
    try {
      const Tensor norm = co_await std::move(call);
      all.push_back(norm.item());
    } catch (const Error& error) {
      refused = error.what();
      co_return all;
    }
    for (const double g : w.grad().to_vector()) all.push_back(g);
  }
  co_return all;
}

TEST(CapturedStep, ClipsWhatIsThereOrRefuses) {
  on_ranks(1, [](World& world) -> Task<void> {
    std::string refused, none;
    const Doubles eager = co_await clipped(world, false, none);
    const Doubles captured = co_await clipped(world, true, refused);
    if (refused.empty()) {
      EXPECT_EQ(eager, captured);
    }
  });
}

// Two captured steps with one set of parameters: the second clears what the first has left.
Task<Doubles> cleared(World& world, bool captured) {
  const Tensor w = parameter(world), v = parameter(world, 0.25);
  const auto first = [&]() -> Task<Tensor> {
    w.set_grad(Tensor());
    v.set_grad(Tensor());
    Tensor loss = sum(mul(w, v));
    co_await backward(loss);
    co_return loss;
  };
  const auto second = [&]() -> Task<Tensor> {
    w.set_grad(Tensor());
    v.set_grad(Tensor());
    Tensor loss = sum(mul(w, w));
    co_await backward(loss);
    co_return loss;
  };
  const CapturedStep one = capture(first), two = capture(second);
  Doubles all;
  for (int i = 0; i < 4; ++i) {
    Task<Tensor> a = captured ? one() : first();
    all.push_back((co_await std::move(a)).item());
    Task<Tensor> b = captured ? two() : second();
    all.push_back((co_await std::move(b)).item());
    all.push_back(v.grad().defined() ? 1 : 0);
    for (const double g : w.grad().to_vector()) all.push_back(g);
  }
  co_return all;
}

TEST(CapturedStep, ClearsTheGradientsThatItsBodyClears) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Doubles eager = co_await cleared(world, false), captured = co_await cleared(world, true);
    EXPECT_EQ(eager, captured);
  });
}

// An input that the body changes in place.
Task<Doubles> changed_input(World& world, bool captured, std::string& refused) {
  const auto body = [](std::vector<Tensor> in) -> Task<Tensor> {
    add_(in[0], 1.0);
    co_return sum(in[0]);
  };
  const CapturedStep step = capture(body);
  Doubles all;
  const Tensor x = ramp(world, Shape{3});
  for (int i = 0; i < 4; ++i) {
    std::vector<Tensor> in{x};
    Task<Tensor> call = captured ? step(in) : body(in);
    try {
      all.push_back((co_await std::move(call)).item());
    } catch (const Error& error) {
      refused = error.what();
      co_return all;
    }
  }
  co_return all;
}

TEST(CapturedStep, ChangesItsInputsAsTheEagerOneDoesOrRefuses) {
  on_ranks(1, [](World& world) -> Task<void> {
    std::string refused, none;
    const Doubles eager = co_await changed_input(world, false, none);
    const Doubles captured = co_await changed_input(world, true, refused);
    if (refused.empty()) {
      EXPECT_EQ(eager, captured);
    }
  });
}

TEST(CapturedStep, GivesItsMemoryBackWhenItIsGone) {
  struct Limit {
    Limit() { FakeDriver::get().set_memory_limit(std::size_t{64} << 20); }
    ~Limit() { FakeDriver::get().set_memory_limit(std::size_t{8} << 30); }
  } limit;
  on_ranks(1, [](World& world) -> Task<void> {
    for (int round = 0; round < 2; ++round) {
      const CapturedStep step = capture([&]() -> Task<Tensor> {
        const Tensor big = full(world.device(), Shape{3 << 20}, 1);  // 12 MiB
        co_return sum(mul(big, big));
      });
      for (int i = 0; i < 3; ++i) {
        Task<Tensor> call = step();
        EXPECT_EQ((co_await std::move(call)).item(), 3 << 20);
      }
    }
    const Tensor eager = full(world.device(), Shape{11 << 20}, 1);  // 44 MiB of 64
    EXPECT_EQ(sum(eager).item(), 11 << 20);
  });
}

TEST(CapturedStep, AFullDeviceNamesTheRequestHoldersAndWhatIsFree) {
  struct Limit {
    Limit() { FakeDriver::get().set_memory_limit(std::size_t{64} << 20); }
    ~Limit() { FakeDriver::get().set_memory_limit(std::size_t{8} << 30); }
  } limit;
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor held = full(world.device(), Shape{5 << 20}, 1);  // 20 MiB
    bool records = false;
    const CapturedStep step = capture([&]() -> Task<Tensor> {
      const Tensor big = full(world.device(), Shape{4 << 20}, 1);  // 16 MiB
      if (!records) co_return sum(big);
      co_return sum(mul(full(world.device(), Shape{9 << 20}, 1), big));
    });
    Task<Tensor> eager = step();
    co_await std::move(eager);
    records = true;
    Task<Tensor> call = step();
    Task<std::string> failure = text_of_failure(std::move(call));
    const std::string text = co_await std::move(failure);
    EXPECT_NE(text.find("cannot allocate"), std::string::npos);
    EXPECT_NE(text.find("are free on the device"), std::string::npos) << text;
    EXPECT_NE(text.find("in use ("), std::string::npos) << text;
    EXPECT_EQ(sum(held).item(), 5 << 20);
  });
}

// What is cached by the pool is there for a recording.
TEST(CapturedStep, RecordsWhereThePoolHasCachedTheMemory) {
  struct Limit {
    Limit() { FakeDriver::get().set_memory_limit(std::size_t{64} << 20); }
    ~Limit() { FakeDriver::get().set_memory_limit(std::size_t{8} << 30); }
  } limit;
  on_ranks(1, [](World& world) -> Task<void> {
    const CapturedStep step = capture([&]() -> Task<Tensor> {
      const Tensor big = full(world.device(), Shape{9 << 20}, 1);  // 36 MiB of 64
      co_return sum(big);
    });
    for (int i = 0; i < 3; ++i) {
      Task<Tensor> call = step();
      EXPECT_EQ((co_await std::move(call)).item(), 9 << 20);
    }
  });
}

TEST(CapturedStep, RefusesAnotherWithin) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = parameter(world), x = ramp(world, Shape{2, 4});
    SGD inner_optimizer({w}, {.lr = 0.1});
    const CapturedStep inner = capture([&]() -> Task<Tensor> {
      Tensor loss = sum(matmul(x, w));
      co_await backward(loss);
      co_await inner_optimizer.step();
      inner_optimizer.zero_grad();
      co_return loss;
    });
    const CapturedStep outer = capture([&]() -> Task<Tensor> {
      Task<Tensor> call = inner();
      Tensor loss = co_await std::move(call);
      co_return mul(loss, 2.0);
    });
    for (int i = 0; i < 6; ++i) {
      Task<Tensor> call = i % 2 == 0 ? outer() : inner();
      Task<std::string> failure = text_of_failure(std::move(call));
      const std::string text = co_await std::move(failure);
      const bool records = i == 2 || i == 4;
      EXPECT_EQ(text.find("while another captured step is being recorded") != std::string::npos,
                records)
          << text;
    }
    EXPECT_EQ(sum(ones(world.device(), Shape{3})).item(), 3);
  });
}

}  // namespace
}  // namespace coshard::testing
