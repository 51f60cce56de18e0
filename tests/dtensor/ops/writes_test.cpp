// Writes in place: through views and other handles, before and after forward.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing {
namespace {

TEST(WritesThroughViews, ABufferFilledThroughAViewHasTheGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = leaf_of(world, {3});
    const Tensor cache = zeros(world.device(), {2, 3}, DType::F64);
    copy_(select(cache, 0, 0), w * 2.0);
    EXPECT_TRUE(cache.requires_grad());
    run_backward(sum(cache * cache) + sum(w));
    EXPECT_EQ(w.grad().to_vector(), (Values{9, 17, 25}));
    co_return;
  });
}

TEST(WritesThroughViews, TheBaseGoesOnWithWhatAViewOfAViewHasBecome) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2, 3});
    const Tensor h = x * 2.0;
    const Tensor row = select(h, 0, 1);
    const Tensor end = slice(row, 0, 1, 3);
    mul_(end, 5.0);
    run_backward(sum(h * h));  // (2x)^2, and (10x)^2 for the two last
    EXPECT_EQ(x.grad().to_vector(), (Values{8, 16, 24, 32, 1000, 1200}));
    EXPECT_EQ(row.to_vector(), (Values{8, 50, 60}));
    EXPECT_TRUE(row.requires_grad());
    co_return;
  });
}

TEST(WritesThroughViews, AViewGoesOnWithWhatTheBaseHasBecome) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {4});
    const Tensor h = x * 3.0;
    const Tensor rows = view(h, {2, 2});
    mul_(h, h);
    run_backward(sum(rows * counting(world, {2, 2})));  // 9 x^2 w
    EXPECT_EQ(x.grad().to_vector(), (Values{18, 72, 162, 288}));
    co_return;
  });
}

TEST(WritesThroughViews, AStretchedViewSumsItsGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {3});
    const Tensor h = x * 1.0;
    const Tensor rows = expand(h, {2, 3});
    mul_(h, 2.0);
    run_backward(sum(rows * rows));  // 2 (2x)^2
    EXPECT_EQ(x.grad().to_vector(), (Values{16, 32, 48}));
    co_return;
  });
}

TEST(WritesThroughViews, OneViewMayBeWrittenFromAnother) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2, 2});
    const Tensor h = x * 1.0;
    mul_(select(h, 0, 0), select(h, 0, 1));  // x0 x2, x1 x3, x2, x3
    run_backward(sum(h));
    EXPECT_EQ(x.grad().to_vector(), (Values{3, 4, 2, 3}));
    co_return;
  });
}

TEST(WritesThroughViews, AnOperandOfTheSameMemoryThatIsBehindKeepsItsGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2});
    const Tensor h = zeros(world.device(), {2}, DType::F64);
    const Tensor rows = view(h, {1, 2}), whole = view(h, {2});
    copy_(rows, view(x, {1, 2}));
    div_(h, whole);  // 1 everywhere
    run_backward(sum(h) + sum(x));
    EXPECT_EQ(x.grad().to_vector(), (Values{1, 1}));
    co_return;
  });
}

// A view that catches up when it is used is older than what uses it.
TEST(WritesThroughViews, AViewThatIsBehindIsOnTheWayOfGrad) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2, 2}), w = leaf_of(world, {2});
    const Tensor h = x * 1.0;
    const Tensor row = select(h, 0, 0);
    mul_(h, 5.0);
    const Tensor loss = sum(w * 2.0 + row);
    EXPECT_EQ(run_grad({loss}, {x})[0].to_vector(), (Values{5, 5, 0, 0}));
    co_return;
  });
}

TEST(WritesThroughViews, AViewMadeOffTheTapeIsNotTakenForOneThatWasMadeOnIt) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2, 2});
    const Tensor h = x * 1.0;
    Tensor row;
    {
      const NoGradGuard off;
      row = select(h, 0, 0);
    }
    const Tensor of_row = slice(row, 0, 0, 1);
    mul_(h, 2.0);
    EXPECT_TRUE(says(refusal_of([&] { static_cast<void>(row * row); }), "NoGradGuard"));
    EXPECT_TRUE(says(refusal_of([&] { static_cast<void>(sum(of_row)); }), "NoGradGuard"));
    co_return;
  });
}

TEST(WritesThroughViews, WhatIsOverwrittenWithAConstantHasNoGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {2, 3});
    const Tensor h = x * 2.0;
    zero_(select(h, 0, 0));
    run_backward(sum(h * h));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 0, 0, 32, 40, 48}));
    co_return;
  });
}

// Random chains of views, writes through them and reads, against differences.
double random_program(const Tensor& x, std::uint64_t seed, Tensor* loss) {
  std::uint64_t state = seed;
  const auto pick = [&](int n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<int>((state >> 33) % static_cast<std::uint64_t>(n));
  };
  const Tensor base = pick(2) ? x * 1.5 : zeros(x.device(), x.shape(), x.dtype());
  std::vector<Tensor> handles{base};
  Tensor total = sum(x);
  for (int i = 0; i < 12; ++i) {
    const Tensor h = handles[static_cast<std::size_t>(pick(static_cast<int>(handles.size())))];
    const int kind = pick(8);
    const int dim = h.ndim() > 0 ? pick(h.ndim()) : 0;
    if (kind == 0 && h.ndim() > 0) handles.push_back(select(h, dim, 0));
    if (kind == 1 && h.ndim() > 0) handles.push_back(slice(h, dim, 0, h.size(dim), 2));
    if (kind == 2 && h.ndim() > 1) handles.push_back(transpose(h, 0, 1));
    if (kind == 3) mul_(h, 1.25);
    if (kind == 4) add_(h, sum(x * x), 0.1);
    if (kind == 5) copy_(h, sin(clone(h)) + sum(x));
    if (kind == 6) total = total + sum(square(clone(h)));
    if (kind == 7) mul_(h, 0.1);
    for (const Tensor& other : handles)
      if (kind == 7 && other.shape() == h.shape() && pick(2)) mul_(h, other);
  }
  for (const Tensor& h : handles) total = total + sum(h * h) * 0.5;
  if (loss != nullptr) *loss = total;
  return total.item();
}

TEST(WritesThroughViews, RandomProgramsHaveTheGradientOfTheirDifferences) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      const Tensor at = counting(world, {3, 2}, DType::F64, 0.1);
      Tensor x = at.detach();
      x.set_requires_grad(true);
      Tensor loss;
      random_program(x, seed, &loss);
      run_backward(loss);
      const Values got = x.grad().to_vector();
      Values values = at.to_vector();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double step = 1e-6, middle = values[i];
        const auto value = [&](double v) {
          values[i] = v;
          const Tensor moved = Tensor::from_values(world.device(), {3, 2}, DType::F64, values);
          return random_program(moved, seed, nullptr);
        };
        const double want = (value(middle + step) - value(middle - step)) / (2 * step);
        values[i] = middle;
        EXPECT_NEAR(got[i], want, 1e-4 * (1 + std::abs(want))) << "seed " << seed << ", " << i;
      }
    }
    co_return;
  });
}

TEST(WritesThroughViews, ALeafsViewsAndPartsAreRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor w = leaf_of(world, {2, 3});
    EXPECT_TRUE(says(refusal_of([&] { mul_(select(w, 0, 0), 2.0); }), "view of a leaf"));
    EXPECT_TRUE(says(refusal_of([&] { mul_(view(t(w), {6}), 2.0); }), "in place"));
    EXPECT_TRUE(says(refusal_of([&] { mul_(from_local(w, mesh, Replicate()), 2.0); }), "mul_"));
    DTensor d = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));
    d.set_requires_grad(true);
    EXPECT_TRUE(says(refusal_of([&] { mul_(to_local(d), 2.0); }), "to_local"));
    EXPECT_TRUE(says(refusal_of([&] { zero_(view(to_local(d), {4})); }), "to_local"));
    EXPECT_TRUE(says(refusal_of([&] { mul_(slice(d, 1, 0, 1), 2.0); }), "view of a leaf"));
    {
      const NoGradGuard no_grad;
      mul_(select(w, 0, 0), 2.0);
      mul_(to_local(d), 2.0);
    }
    EXPECT_EQ(w.to_vector(), (Values{2, 4, 6, 4, 5, 6}));
    const Tensor quiet = w * 1.0;
    Tensor made_quietly;
    {
      const NoGradGuard no_grad;
      made_quietly = select(quiet, 0, 0);
    }
    EXPECT_TRUE(says(refusal_of([&] { mul_(made_quietly, 2.0); }), "NoGradGuard"));
    co_return;
  });
}

TEST(WritesThroughViews, AnotherHandleOfTheMemoryIsRefusedOnTheTape) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor w = leaf_of(world, {3});
    const Tensor buffer = zeros(world.device(), {3}, DType::F64);
    const Tensor same = buffer.detach();
    copy_(same, w * 2.0);
    EXPECT_TRUE(says(refusal_of([&] { sum(buffer * w); }), "another handle"));
    const Tensor local = zeros(world.device(), {3}, DType::F64);
    copy_(from_local(local, mesh, Replicate()), from_local(w, mesh, Replicate()));
    EXPECT_TRUE(says(refusal_of([&] { sum(local * w); }), "another handle"));
    const DTensor whole = zeros(mesh, Replicate(), {3}, DType::F64);
    copy_(to_local(whole), w);
    EXPECT_TRUE(says(refusal_of([&] { sum(whole * whole); }), "another handle"));
    const DTensor cut = zeros(mesh, Shard(0), {4, 3}, DType::F64);
    DTensor row = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    row.set_requires_grad(true);
    const DTensor column = select(cut, 1, 0);
    copy_(column, row * 2.0);
    run_backward(sum(cut * cut));
    EXPECT_EQ(full_tensor(row.grad()).to_vector(), (Values{8, 16, 24, 32}));
    const NoGradGuard no_grad;
    EXPECT_EQ(sum(buffer).item(), 12);
    co_return;
  });
}

TEST(WritesThroughViews, AViewThatMovedItsDataWritesThemBack) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {4}, {"tp"});
    const DTensor x = zeros(mesh, Shard(0), {8, 2}, DType::F64);
    const DTensor head = slice(x, 0, 2, 4);
    fill_(head, 7);
    EXPECT_EQ(sum(full_tensor(x)).item(), 28);
    const NoGradGuard no_grad;
    fill_(head, 1);
    EXPECT_EQ(sum(full_tensor(x)).item(), 4);
    fill_(head.detach(), 7);
    EXPECT_EQ(sum(full_tensor(x)).item(), 28);
    fill_(clone(head), 9);
    fill_(slice(x, 1, 0, 1), 7);  // nothing moved
    EXPECT_EQ(sum(full_tensor(x)).item(), 70);
    co_return;
  });
}

TEST(WritesThroughViews, AReshapeThatCopiedIsNoPlaceToWrite) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2, 3});
    const Tensor flat = reshape(t(x), {6});
    EXPECT_TRUE(says(refusal_of([&] { fill_(flat, 7); }), "clone"));
    EXPECT_TRUE(says(refusal_of([&] { add_(slice(flat, 0, 0, 2), 7); }), "clone"));
    const Tensor own = clone(flat);
    fill_(own, 7);
    fill_(reshape(x, {6}), 1);
    EXPECT_EQ(x.to_vector(), Values(6, 1));
    EXPECT_TRUE(says(refusal_of([&] { add_(expand(x, {2, 2, 3}), 1); }), "clone"));
    const Tensor three = repeat(slice(x, 0, 0, 1), {3, 1});
    EXPECT_EQ(add_(three, 1).to_vector(), Values(9, 2));
    add_(repeat(x, {1, 1}), 5);
    EXPECT_EQ(x.to_vector(), Values(6, 1));
    co_return;
  });
}

TEST(Writers, AnOptimizersStepIsSeenByALaterBackward) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const bool adam : {false, true}) {
      const Tensor w = leaf_of(world, {3});
      std::unique_ptr<Optimizer> optimizer;
      if (adam)
        optimizer = std::make_unique<AdamW>(std::vector<Tensor>{w});
      else
        optimizer = std::make_unique<SGD>(std::vector<Tensor>{w});
      const Tensor loss = sum(w * w * w);
      const Tensor generator = sum(w * w);
      co_await backward(loss);
      co_await optimizer->step();
      const std::string text = refusal_of([&] { run_backward(generator); });
      EXPECT_TRUE(says(text, "mul: ") && says(text, "changed in place")) << text;
    }
  });
}

TEST(WritesThroughViews, LeaveNothingBehind) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto program = [&] {
      const Tensor x = leaf_of(world, {64, 64});
      const Tensor h = exp(x);
      mul_(select(h, 0, 0), 2.0);
      const Tensor y = h * h;
      const Tensor row = select(h, 0, 1);
      copy_(row, select(y, 0, 2));
      add_(h, y);
      return sum(row * row).requires_grad();
    };
    EXPECT_TRUE(program());
    const std::size_t before = world.device()->memory().in_use;
    for (int i = 0; i < 10; ++i) program();
    EXPECT_EQ(world.device()->memory().in_use, before);
    co_return;
  });
}

TEST(Writers, WritesByHandAreTold) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = leaf_of(world, {3});
    const Tensor loss = sum(w * w);
    w.raw_local().mark_written();
    EXPECT_TRUE(says(refusal_of([&] { run_backward(loss); }), "changed in place"));
    std::vector<double> memory{1, 2, 3};
    if (world.device()->kind() != DeviceKind::Cpu) co_return;
    const Tensor data = Tensor::borrow(world.device(), memory.data(), {3}, DType::F64);
    const Tensor product = sum(w * data);
    memory[0] = 5;
    data.mark_written();
    EXPECT_TRUE(says(refusal_of([&] { run_backward(product); }), "mul: "));
  });
}

TEST(Writers, EveryHandleCounts) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const std::function<void(const Tensor&)> writers[] = {
        [](const Tensor& w) { normal_(w.detach(), 0, 1); },
        [](const Tensor& w) { uniform_(w.detach(), 0, 1); },
        [](const Tensor& w) { fill_(w.detach(), 2); },
        [](const Tensor& w) { copy_(w.detach(), w.detach()); },
        [&](const Tensor& w) { add_(from_local(w.detach(), mesh, Replicate()), 1.0); },
        [](const Tensor& w) {
          add_(select(view(w.detach(), {3, 1}), 0, 1), 1.0);
        },
    };
    for (const auto& write : writers) {
      const Tensor w = leaf_of(world, {3});
      const Tensor loss = sum(w * w);
      write(w);
      const std::string text = refusal_of([&] { run_backward(loss); });
      EXPECT_TRUE(says(text, "mul: ") && says(text, "f64[3]")) << text;
    }
    DTensor d = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    d.set_requires_grad(true);
    const DTensor loss = sum(d * d);
    add_(to_local(d.detach()), 1.0);
    EXPECT_TRUE(says(refusal_of([&] { run_backward(loss); }), "changed in place"));
    co_return;
  });
}

TEST(Writers, ARandomFillOfATensorOnTheTapeTakesItsGradient) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor w = leaf_of(world, {2, 3});
    EXPECT_TRUE(says(refusal_of([&] { normal_(w, 0, 1); }), "leaf"));
    EXPECT_TRUE(says(refusal_of([&] { uniform_(select(w, 0, 0), 0, 1); }), "view of a leaf"));
    const Tensor h = w * 2.0;
    normal_(select(h, 0, 0), 0, 1);
    run_backward(sum(h));
    EXPECT_EQ(w.grad().to_vector(), (Values{0, 0, 0, 2, 2, 2}));
    co_return;
  });
}

TEST(Writers, FromLocalsTermMayNotChange) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor term = counting(world, {2});
    term.set_requires_grad(true);
    const DTensor x = from_local(term, mesh, Partial(Reduce::Product));
    const DTensor loss = sum(x.redistribute(Replicate()).tensor());
    fill_(term.detach(), 5);
    const std::string text = refusal_of([&] { run_backward(loss); });
    EXPECT_TRUE(says(text, "from_local: ") && says(text, "changed in place")) << text;
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
