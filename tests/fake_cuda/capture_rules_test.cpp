// What a captured step rejects, with named errors, and which host state its replays advance.
#include <coshard/dtensor/capture/capture.h>

#include <optional>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/fake_cuda/captured.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

Tensor square_loss(const Tensor& x, const Tensor& w) {
  const Tensor y = matmul(x, w);
  return sum(mul(y, y));
}

Task<Tensor> update(Optimizer& optimizer, Tensor x, Tensor w) {
  Tensor loss = square_loss(x, w);
  co_await backward(loss);
  co_await optimizer.step();
  optimizer.zero_grad();
  co_return loss;
}

// The error of the call that records `body`, after an eager one; `records` tells which one it is.
Task<std::string> refusal(const std::function<Task<Tensor>(bool records)>& body) {
  bool records = false;
  const CapturedStep step = capture([&]() -> Task<Tensor> { return body(records); });
  Task<Tensor> eager = step();
  co_await std::move(eager);
  records = true;
  std::string text;
  try {
    Task<Tensor> recorded = step();
    co_await std::move(recorded);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported) << error.what();
    text = error.what();
  }
  EXPECT_FALSE(step.recorded());
  co_return text;
}

void expect_refusal(const std::string& words,
                    const std::function<Task<Tensor>(World& world, bool records)>& body) {
  on_ranks(1, [&](World& world) -> Task<void> {
    const Tensor before = ramp(world, Shape{3});
    const std::function<Task<Tensor>(bool)> here = [&](bool records) {
      return body(world, records);
    };
    Task<std::string> refused = refusal(here);
    const std::string text = co_await std::move(refused);
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_EQ(add(before, before).to_vector(), (Doubles{0, 0.5, 1}));  // the device still works
  });
}

TEST(CapturedStepRefuses, AHostReadAndAnUploadByName) {
  expect_refusal("item: cannot copy to the host within a captured step on cuda:0",
                 [](World& world, bool) -> Task<Tensor> {
                   const double read = sum(ones(world.device(), Shape{1})).item();
                   co_return full(world.device(), Shape(), read);
                 });
  expect_refusal("from_values: cannot copy from the host within a captured step",
                 [](World& world, bool records) -> Task<Tensor> {
                   const Tensor zero = zeros(world.device(), Shape{2});
                   co_return records ? ramp(world, Shape{2}) : zero;
                 });
  expect_refusal("item: cannot copy to the host", [](World& world, bool) -> Task<Tensor> {
    const Tensor one = full(world.device(), Shape(), 1);
    one.item();
    co_return one;
  });
}

TEST(CapturedStepRefuses, AddingToAGradientFromBefore) {
  Tensor w;
  expect_refusal("backward: adding to a gradient from before the step",
                 [&w](World& world, bool records) -> Task<Tensor> {
                   if (!records) w = parameter(world);
                   Tensor loss = sum(mul(w, w));
                   co_await backward(loss);
                   co_return loss;
                 });
  w = Tensor();
}

TEST(CapturedStepRefuses, AGradientFromBeforeAndAFirstStepOfAnOptimizer) {
  Tensor w;
  std::optional<AdamW> optimizer;
  for (const bool stale : {false, true}) {
    expect_refusal(stale
                       ? "optimizer: a gradient from before the step"
                       : "AdamW: cannot allocate the moments of a parameter within a captured step",
                   [&, stale](World& world, bool records) -> Task<Tensor> {
                     if (!records) {
                       w = parameter(world);
                       optimizer.emplace(std::vector<Tensor>{w});
                     }
                     Tensor loss = sum(mul(w, w));
                     if (records != stale) co_await backward(loss);
                     co_await optimizer->step();
                     co_return loss;
                   });
  }
  optimizer.reset();
  w = Tensor();
}

TEST(CapturedStepRefuses, RandomNumbersOfAnotherSeed) {
  expect_refusal("another seed", [](World& world, bool) -> Task<Tensor> {
    manual_seed(random_state().seed + 1);
    co_return rand(world.device(), Shape{3});
  });
  expect_refusal("another seed", [](World& world, bool) -> Task<Tensor> {
    const auto child = [](World& w) -> Task<void> {
      rand(w.device(), Shape{3});
      co_return;
    };
    auto both = when_all(child(world), child(world));
    co_await std::move(both);
    co_return zeros(world.device(), Shape{1});
  });
}

TEST(CapturedStepRefuses, InputsOfAnotherShape) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = parameter(world);
    const CapturedStep step =
        capture([&](std::vector<Tensor> in) -> Task<Tensor> { co_return square_loss(in[0], w); });
    for (int i = 0; i < 3; ++i) {
      const Tensor x = ramp(world, Shape{2, 4});
      Task<Tensor> call = step(x);
      co_await std::move(call);
    }
    std::string text;
    try {
      const Tensor x = ramp(world, Shape{3, 4});
      Task<Tensor> call = step(x);
      co_await std::move(call);
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_NE(text.find("input 0 is f32[3,4], but it was recorded with f32[2,4]"),
              std::string::npos)
        << text;
  });
}

TEST(CapturedStepRefuses, CollectivesOfTheLocalCommunicator) {
  WorldOptions options = test_options(2);
  options.communicator = "local";
  options.timeout = std::chrono::seconds(60);
  const Program program = [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const std::function<Task<Tensor>(bool)> body = [&](bool) -> Task<Tensor> {
      const DTensor part = ones(mesh, Layout{Partial()}, Shape{4});
      DTensor whole = co_await part.redistribute(Replicate());
      co_return whole;
    };
    Task<std::string> refused = refusal(body);
    const std::string text = co_await std::move(refused);
    EXPECT_NE(text.find("a collective of the local communicator: cannot"), std::string::npos)
        << text;
    // A rejected collective takes no place in the order of collectives.
    const DTensor part = ones(mesh, Layout{Partial()}, Shape{4});
    const DTensor whole = co_await part.redistribute(Replicate());
    EXPECT_EQ(whole.to_vector(), Doubles(4, 1));
  };
  run_ranks(options, program);
}

// Alternates two captured steps and eager ones on the same parameters.
Task<Doubles> mixed(World& world, bool captured) {
  const Tensor w = parameter(world), v = parameter(world);
  SGD first(std::vector<Tensor>{w}, {.lr = 0.01, .momentum = 0.9});
  AdamW second({w, v}, {.lr = 0.01});
  const auto sgd = [&](std::vector<Tensor> in) -> Task<Tensor> { return update(first, in[0], w); };
  const auto adam = [&](std::vector<Tensor> in) -> Task<Tensor> {
    return update(second, add(in[0], in[1]), add(w, v));
  };
  auto one = std::make_unique<CapturedStep>(capture(sgd));
  auto two = std::make_unique<CapturedStep>(capture(adam));
  std::vector<Tensor> losses;
  for (int i = 0; i < 12; ++i) {
    first.lr = 0.01 + 0.001 * i;
    const std::vector<Tensor> in = {ramp(world, Shape{2, 4}, i), ramp(world, Shape{2, 4}, -i)};
    if (i == 9) {  // its last step may be in flight
      one = std::make_unique<CapturedStep>(capture(sgd));
      two = nullptr;
    }
    Task<Tensor> call;
    if (i % 2 == 0)
      call = captured ? (*one)(in) : sgd(in);
    else
      call = captured && two != nullptr && i != 5 ? (*two)(in) : adam(in);
    losses.push_back(co_await std::move(call));
  }
  Doubles all = w.to_vector();
  for (const double value : v.to_vector()) all.push_back(value);
  for (const Tensor& loss : losses) all.push_back(loss.item());
  co_return all;
}

TEST(CapturedStep, MixesWithOthersAndWithEagerOnes) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    FakeDriver::get().reseed(seed);
    on_ranks(1, [](World& world) -> Task<void> {
      const Doubles eager = co_await mixed(world, false), captured = co_await mixed(world, true);
      EXPECT_EQ(eager, captured);
    });
  }
}

TEST(CapturedStep, CountsChangesInPlaceInEachReplay) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = parameter(world), mean = zeros(world.device(), Shape{4, 3});
    const CapturedStep step = capture([&]() -> Task<Tensor> { co_return add_(mean, 1.0); });
    for (int i = 0; i < 3; ++i) {
      Task<Tensor> call = step();
      const Tensor now = co_await std::move(call);
      EXPECT_EQ(now.to_vector(), Doubles(12, i + 1.0));  // its own memory
      EXPECT_EQ(mean.storage()->changes(), static_cast<std::uint32_t>(i + 1));
    }
    const Tensor product = sum(mul(w, mean));  // saves `mean`
    Task<Tensor> call = step();
    co_await std::move(call);
    EXPECT_NE(error_text(ErrorKind::BadInput, [&] { run_backward(product); }), "");
  });
}

TEST(CapturedStep, SaysThatItsOptimizerIsGone) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = parameter(world), x = ramp(world, Shape{2, 4});
    auto optimizer = std::make_unique<AdamW>(std::vector<Tensor>{w});
    const CapturedStep step = capture([&]() -> Task<Tensor> { return update(*optimizer, x, w); });
    for (int i = 0; i < 2; ++i) {
      Task<Tensor> call = step();
      co_await std::move(call);
    }
    optimizer = nullptr;
    std::string text;
    try {
      Task<Tensor> call = step();
      co_await std::move(call);
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_NE(text.find("the optimizer of a captured step was destroyed"), std::string::npos)
        << text;
  });
}

// Over NCCL: collectives that the body does not await are part of the step, and can be read later.
Task<Doubles> left_in_flight(World& world, bool captured) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const Tensor w = parameter(world);
  const auto body = [&](std::vector<Tensor> in) -> Task<Tensor> {
    SGD({w}).zero_grad();
    Tensor loss = square_loss(in[0], w);
    co_await backward(loss);
    all_reduce_gradients({w}, mesh, 0);
    const Redistribution dropped =
        ones(mesh, Layout{Partial()}, Shape{64}).redistribute(Replicate());
    co_return loss;
  };
  const CapturedStep step = capture(body);
  Doubles all;
  for (int i = 0; i < 4; ++i) {
    const std::vector<Tensor> in = {ramp(world, Shape{2, 4}, i + world.rank())};
    Task<Tensor> call = captured ? step(in) : body(in);
    const Tensor loss = co_await std::move(call);
    const Tensor twice = add(w.grad(), w.grad());
    for (const double value : twice.to_vector()) all.push_back(value);
    all.push_back(loss.item());
  }
  co_return all;
}

TEST(CapturedStep, JoinsWhatNobodyHasAwaited) {
  WorldOptions options = test_options(2);
  options.communicator = "nccl";
  options.timeout = std::chrono::seconds(60);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    FakeDriver::get().reseed(seed);
    const Program program = [](World& world) -> Task<void> {
      const Doubles eager = co_await left_in_flight(world, false);
      const Doubles captured = co_await left_in_flight(world, true);
      EXPECT_EQ(eager, captured);
    };
    run_ranks(options, program);
  }
}

}  // namespace
}  // namespace coshard::testing
