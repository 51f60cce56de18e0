// User programs that do things in an unusual order, over seeds, on one device and on several.
#include <thread>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/capture/capture.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/redistribute/transfer_to.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/failure.h>
#include "tests/fake_cuda/on_fake.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

using Doubles = std::vector<double>;
using std::chrono::milliseconds;

constexpr int kSeedsOfPrograms = 6;

struct Setup {
  int ranks, devices;
  const char* communicator;
};
void PrintTo(const Setup& place, std::ostream* out) {
  *out << place.ranks << " ranks, " << place.devices << " devices, " << place.communicator;
}

WorldOptions options_of(const Setup& place, int timeout_ms = 30'000) {
  WorldOptions options = test_options(place.ranks);
  options.communicator = place.communicator;
  options.timeout = milliseconds(timeout_ms);
  return options;
}

class Programs : public ::testing::TestWithParam<Setup> {
 protected:
  Programs() : devices_(GetParam().devices) {}
  // Expects the same values on each rank for all seeds.
  void expect_same_bits(const std::function<Task<Doubles>(World&)>& program) {
    std::vector<Doubles> first;
    for (std::uint64_t seed = 1; seed <= kSeedsOfPrograms; ++seed) {
      FakeDriver::get().reseed(seed);
      std::vector<Doubles> now(static_cast<std::size_t>(GetParam().ranks));
      const Program body = [&](World& world) -> Task<void> {
        Task<Doubles> run = program(world);
        Doubles values = co_await std::move(run);
        now[static_cast<std::size_t>(world.rank())] = std::move(values);
      };
      run_ranks(options_of(GetParam()), body);
      for (const Doubles& values : now)
        for (const double value : values) ASSERT_EQ(value, value) << "seed " << seed;
      if (first.empty()) first = now;
      EXPECT_EQ(first, now) << "seed " << seed;
    }
    EXPECT_EQ(FakeDriver::get().take_complaints(), std::vector<std::string>());
  }

 private:
  Devices devices_;
};

void append(Doubles& all, const Tensor& x) {
  for (const double value : x.to_vector()) all.push_back(value);
}

Tensor ramp(World& world, const Shape& shape, double from = 0) {
  Doubles values;
  for (std::int64_t i = 0; i < numel(shape); ++i)
    values.push_back(0.37 * static_cast<double>(i % 11) + from);
  return Tensor::from_values(world.device(), shape, DType::F32, values);
}

// Work that is dropped, on tensors that are freed at once, among siblings.
TEST_P(Programs, DropsWorkAndTensorsInFlightBesideSiblings) {
  expect_same_bits([](World& world) -> Task<Doubles> {
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
    Doubles all;
    const auto dropper = [](DeviceMesh m, World& w) -> Task<void> {
      for (int i = 0; i < 6; ++i) {
        const DTensor x = from_local(ramp(w, Shape{3 + i, 5}, w.rank() + i), m, Layout{Partial()});
        const Redistribution gone = x.redistribute(Replicate());
        const Redistribution cut = x.redistribute(Shard(0));
        if (i % 2 == 0) co_await gone;
        for (int k = 0; k < 4; ++k) full(w.device(), Shape{3 + i, 5}, -77);
      }
    };
    const auto keeper = [](DeviceMesh m, World& w, Doubles* out) -> Task<void> {
      Tensor acc = ones(w.device(), Shape{1});
      for (int i = 0; i < 6; ++i) {
        const DTensor x = from_local(ramp(w, Shape{2, 7 + i}, w.rank() - i), m, Layout{Partial()});
        Redistribution r = x.redistribute(Shard(1));
        const DTensor there = co_await r;
        const DTensor back = there.redistribute(Replicate()).tensor();
        acc = add(acc, sum(back.raw_local()));
      }
      append(*out, acc);
    };
    auto both = when_all(dropper(mesh, world), keeper(mesh, world, &all), dropper(mesh, world));
    co_await std::move(both);
    co_return all;
  });
}

// Uneven and empty shards, consumed as they arrive, while earlier ones are used in matmuls.
TEST_P(Programs, TakesUnevenAndEmptyShardsAsTheyArrive) {
  expect_same_bits([](World& world) -> Task<Doubles> {
    const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
    Doubles all;
    for (const std::int64_t rows : {1, 2, 3, 7, 9000}) {
      const Tensor whole = ramp(world, Shape{rows, 6}, 0.25);
      const DTensor cut = distribute_tensor(whole, mesh, Layout{Shard(0)});
      Redistribution r = cut.redistribute(Replicate());
      Redistribution again = r;
      double seen = 0;
      const Tensor w = ramp(world, Shape{6, 2}, -1);
      while (auto part = co_await r.next_shard()) {
        seen += static_cast<double>(part->tensor.local_numel());
        if (part->tensor.local_numel() > 0) append(all, sum(matmul(part->tensor.raw_local(), w)));
      }
      all.push_back(seen);
      const DTensor back = co_await again;
      EXPECT_EQ(back.to_vector(), whole.to_vector());
    }
    co_return all;
  });
}

// Overlapping meshes that exclude some ranks, used in turn while work is in flight on others.
TEST_P(Programs, UsesManyMeshesWithOutsidersAtOnce) {
  expect_same_bits([](World& world) -> Task<Doubles> {
    const int n = world.size();
    std::vector<DeviceMesh> meshes{init_device_mesh(world, {n}, {"all"})};
    for (int left_out = 0; left_out < n; ++left_out) {
      std::vector<int> ranks;
      for (int r = n - 1; r >= 0; --r)
        if (r != left_out) ranks.push_back(r);
      if (ranks.empty()) continue;
      const int count = static_cast<int>(ranks.size());
      meshes.push_back(DeviceMesh::from_ranks(world, ranks, {count}, {"part"}));
    }
    std::vector<Redistribution> flying;
    for (int round = 0; round < 3; ++round)
      for (const DeviceMesh& mesh : meshes) {
        const DTensor x = add(ones(mesh, Layout{Partial()}, Shape{5, 3}),
                              rand(mesh, Layout{Replicate()}, Shape{5, 3}));
        flying.push_back(x.redistribute(Replicate()));
        flying.push_back(rand(mesh, Layout{Shard(0)}, Shape{5, 3}).redistribute(Shard(1)));
      }
    Doubles all;
    for (auto r = flying.rbegin(); r != flying.rend(); ++r) {
      const DTensor there = co_await *r;
      append(all, there.raw_local());
    }
    co_return all;
  });
}

// Both ways around the ring, in flight together, and overwritten as soon as possible.
TEST_P(Programs, SendsRoundTheRingAndWritesAgain) {
  expect_same_bits([](World& world) -> Task<Doubles> {
    const int n = world.size();
    Tensor x = ramp(world, Shape{4, 4}, world.rank());
    Doubles all;
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<Redistribution> flying;
      for (int r = 0; r < n; ++r) flying.push_back(transfer(x, r, (r + 1) % n));
      Tensor got = x;
      for (int r = 0; r < n; ++r) {
        const Tensor there = co_await flying[static_cast<std::size_t>(r)];
        if ((r + 1) % n == world.rank()) got = there;
      }
      add_(x, 100.0);
      for (int i = 0; i < 3; ++i) full(world.device(), Shape{4, 4}, -5);
      append(all, got);
      x = add(got, 1.0);
    }
    co_return all;
  });
}

Task<Doubles> trained_by_user(World& world, bool captured, bool ahead) {
  manual_seed(3);
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const Tensor start = ramp(world, Shape{7, 3}, -1);
  DTensor w = distribute_tensor(start, mesh, Layout{Shard(0)});
  w.set_requires_grad(true);
  Tensor bias = zeros(world.device(), Shape{3});
  bias.set_requires_grad(true);
  AdamW adam({w}, {.lr = 0.05});
  SGD sgd({bias}, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
  const auto body = [&](std::vector<Tensor> in) -> Task<Tensor> {
    Redistribution r = w.redistribute(Replicate());
    const DTensor x = from_local(in[0], mesh, Layout{Shard(0)});
    const DTensor whole = co_await r;
    const Tensor y = dropout(add(matmul(x, whole).raw_local(), 0.0), 0.25);
    const Tensor part = sum(mul(add(y, bias), add(y, bias)));
    const Tensor z = sum(mul(matmul(x, whole), matmul(x, whole)));
    DTensor reduced = co_await z.redistribute(Replicate());
    co_await backward(reduced);
    co_await backward(part);
    all_reduce_gradients({bias}, mesh, 0, Reduce::Avg);
    Task<Tensor> clip = clip_grad_norm({w, bias}, 0.5, 3.0);
    const Tensor norm = co_await std::move(clip);
    co_await adam.step();
    co_await sgd.step();
    adam.zero_grad();
    sgd.zero_grad();
    co_return add(norm, to(reduced.raw_local(), DType::F64));
  };
  const CapturedStep step = capture(body, {.eager_steps = 2});
  Doubles all;
  std::vector<Tensor> results;
  std::vector<Redistribution> flying;
  for (int i = 0; i < 8; ++i) {
    adam.lr = 0.05 / (i + 1);
    sgd.lr = 0.1 / (i + 1);
    if (i == 5) {  // a checkpoint is loaded
      const NoGradGuard quiet;
      const Tensor saved = ramp(world, w.local_shape(), 0.5);
      copy_(w.raw_local(), saved);
      manual_seed(17);
    }
    std::vector<Tensor> in{ramp(world, Shape{2, 7}, world.rank() + i)};
    if (ahead) flying.push_back(add(w.detach(), 0.0).redistribute(Replicate()));
    Task<Tensor> call = captured ? step(in) : body(in);
    results.push_back(co_await std::move(call));
    if (ahead && i % 2 == 0) flying.clear();
  }
  for (const Redistribution& r : flying) append(all, (co_await r).raw_local());
  for (const Tensor& r : results) append(all, r);
  append(all, w.raw_local());
  append(all, bias);
  co_return all;
}

TEST_P(Programs, CaptureAStepWithTwoOptimizersSchedulesAndALoadedCheckpoint) {
  if (std::string(GetParam().communicator) == "local" && GetParam().ranks > 1) GTEST_SKIP();
  expect_same_bits([](World& world) -> Task<Doubles> {
    const Doubles eager = co_await trained_by_user(world, false, false);
    const Doubles captured = co_await trained_by_user(world, true, false);
    EXPECT_EQ(eager, captured);
    const Doubles ahead = co_await trained_by_user(world, true, true);
    const Doubles eager_ahead = co_await trained_by_user(world, false, true);
    EXPECT_EQ(eager_ahead, ahead);
    co_return captured;
  });
}

INSTANTIATE_TEST_SUITE_P(Fake, Programs,
                         ::testing::Values(Setup{1, 1, "local"}, Setup{2, 1, "local"},
                                           Setup{4, 1, "local"}, Setup{3, 2, "local"},
                                           Setup{4, 4, "local"}, Setup{2, 2, "nccl"},
                                           Setup{4, 4, "nccl"}, Setup{3, 3, "nccl"}));

// ---- failures ----

struct Ended {
  std::vector<std::string> texts;
  double seconds = 0;
};

// What each rank throws in `program`; the errors also reach the world.
Ended ends_of(const WorldOptions& options, const std::function<Task<void>(World&)>& program) {
  Ended ended;
  ended.texts.resize(static_cast<std::size_t>(options.ranks));
  const auto begin = std::chrono::steady_clock::now();
  const Program body = [&](World& world) -> Task<void> {
    try {
      Task<void> run = program(world);
      co_await std::move(run);
    } catch (const Error& error) {
      ended.texts[static_cast<std::size_t>(world.rank())] =
          str_cat(to_string(error.kind()), ": ", error.what());
      throw;
    } catch (const std::exception& error) {
      ended.texts[static_cast<std::size_t>(world.rank())] = error.what();
      throw;
    }
  };
  try {
    run_ranks(options, body);
  } catch (const std::exception&) {
  }
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return ended;
}

// A message that its sender has not awaited is sent before the step.
Task<void> message_before_steps(World& world, bool captured) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const Tensor w = ramp(world, Shape{4});
  const auto body = [&]() -> Task<Tensor> {
    const DTensor x = from_local(w, mesh, Layout{Partial()});
    const DTensor whole = co_await x.redistribute(Replicate());
    co_return sum(whole.raw_local());
  };
  const CapturedStep step = capture(body);
  for (int i = 0; i < 5; ++i) {
    const Tensor x = full(world.device(), Shape{3}, world.rank() + i);
    const Redistribution sent = transfer(x, 0, 1);
    if (world.rank() == 1) {
      EXPECT_EQ(sent.tensor().to_vector(), Doubles(3, i));
    }
    Task<Tensor> call = captured ? step() : body();
    const Tensor loss = co_await std::move(call);
    EXPECT_EQ(loss.item(), 2 * sum(w).item());
  }
}

class Steps : public ::testing::TestWithParam<bool> {};

TEST_P(Steps, ComeAfterMessagesThatNobodyHasAwaited) {
  const Devices two(2);
  for (std::uint64_t seed = 1; seed <= kSeedsOfPrograms; ++seed) {
    FakeDriver::get().reseed(seed);
    const Ended ended = ends_of(options_of({2, 2, "nccl"}, 2000), [](World& world) {
      return message_before_steps(world, GetParam());
    });
    for (const std::string& text : ended.texts) ASSERT_EQ(text, "");
  }
}

INSTANTIATE_TEST_SUITE_P(EagerAndCaptured, Steps, ::testing::Bool());

enum class Mischief { Dies, Leaves, Late, Disagrees, Eager };

Task<void> replaying(World& world, Mischief mischief) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"dp"});
  const Tensor w = ramp(world, Shape{4});
  const auto body = [&]() -> Task<Tensor> {
    const DTensor x = from_local(w, mesh, Layout{Partial()});
    const DTensor whole = co_await x.redistribute(Replicate());
    copy_(w, whole.raw_local());
    co_return sum(w);
  };
  const CapturedStep step = capture(body);
  for (int i = 0; i < 6; ++i) {
    if (i == 4 && world.rank() == 1) {
      if (mischief == Mischief::Dies) fail(ErrorKind::BadInput, "the disk is full");
      if (mischief == Mischief::Leaves) co_return;
      if (mischief == Mischief::Late) std::this_thread::sleep_for(milliseconds(3000));
      if (mischief == Mischief::Disagrees) {
        const DTensor x = ones(mesh, Layout{Partial()}, Shape{9});
        co_await x.redistribute(Shard(0));
      }
      if (mischief == Mischief::Eager) {
        Task<Tensor> call = body();
        co_await std::move(call);
      }
    }
    Task<Tensor> call = step();
    const Tensor loss = co_await std::move(call);
    if (i >= 3) loss.item();
  }
}

class BesideReplays : public ::testing::TestWithParam<Mischief> {};

TEST_P(BesideReplays, EndOnAllRanksInTimeWithANamedCulprit) {
  const Devices two(2);
  const Ended ended = ends_of(options_of({2, 2, "nccl"}, 1000),
                              [](World& world) { return replaying(world, GetParam()); });
  EXPECT_LT(ended.seconds, 8);
  const std::string& text = ended.texts[0];
  const bool named =
      text.find("rank 1") != std::string::npos || text.find("missing: 1") != std::string::npos;
  EXPECT_TRUE(named) << text;
  for (const std::string& each : ended.texts) {  // a launch is not what it launches
    if (GetParam() != Mischief::Eager) continue;
    EXPECT_NE(each.find("rank 0 calls a launch of 1 recorded"), std::string::npos) << each;
    EXPECT_NE(each.find("rank 1 calls all_reduce"), std::string::npos) << each;
  }
  FakeDriver::get().take_complaints();
}

INSTANTIATE_TEST_SUITE_P(Nccl, BesideReplays,
                         ::testing::Values(Mischief::Dies, Mischief::Leaves, Mischief::Late,
                                           Mischief::Disagrees, Mischief::Eager));

}  // namespace
}  // namespace coshard::testing
