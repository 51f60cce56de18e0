// Whose memory a gradient is, and what is the same on all ranks.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing {
namespace {

TEST(GradientMemory, LeavesAndTheCallerHaveTheirOwn) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor c = leaf_of(world, {3}), d = leaf_of(world, {3}), e = leaf_of(world, {3});
    const Tensor g = counting(world, {3});
    run_backward(c + d, g);
    run_backward(e, g);
    const Tensor leaves[] = {c, d, e};
    for (const Tensor& leaf : leaves) {
      const NoGradGuard no_grad;
      mul_(leaf.grad(), 0.5);
    }
    EXPECT_EQ(g.to_vector(), (Values{1, 2, 3}));
    for (const Tensor& leaf : leaves) EXPECT_EQ(leaf.grad().to_vector(), (Values{0.5, 1, 1.5}));
    co_return;
  });
}

TEST(GradientMemory, AStretchedGradientIsWrittenOut) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = leaf_of(world, {3});
    run_backward(sum(x));
    mul_(slice(x.grad(), 0, 0, 1), 4.0);
    EXPECT_EQ(x.grad().to_vector(), (Values{4, 1, 1}));
    co_return;
  });
}

TEST(GradientMemory, AViewsGradientIsNotTheGradientOfAnother) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor whole = distribute_tensor(counting(world, {4}), mesh, Replicate());
    DTensor cut = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    whole.set_requires_grad(true);
    cut.set_requires_grad(true);
    const DTensor back = redistribute(cut, Replicate()).tensor();
    run_backward(whole + back, ones(mesh, Replicate(), {4}, DType::F64));
    mul_(whole.grad(), 3.0);
    mul_(cut.grad(), 2.0);
    EXPECT_EQ(full_tensor(whole.grad()).to_vector(), Values(4, 3));
    EXPECT_EQ(full_tensor(cut.grad()).to_vector(), Values(4, 2));
    co_return;
  });
}

// With one column or none on a rank its strides look like those of another order.
TEST(MatmulGradient, IssuesTheSameCollectivesOnAllRanks) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Placement placements[] = {Replicate(), Shard(0), Shard(1)};
    for (const Placement& of_x : placements)
      for (const Placement& of_w : placements)
        for (const Placement& of_dy : placements)
          for (const int columns : {1, 2, 3}) {
            DTensor w = distribute_tensor(counting(world, {3, columns}), mesh, of_w);
            w.set_requires_grad(true);
            const DTensor x = distribute_tensor(counting(world, {8, columns}), mesh, of_x);
            const DTensor y = matmul(x, transpose(w, 0, 1));
            const CountingObserver seen(world);
            Task<void> walk = backward(y, ones(mesh, of_dy, y.shape(), DType::F64));
            co_await std::move(walk);
            const Tensor count = full(world.device(), {1}, seen.total(), DType::F64);
            const DTensor counts = from_local(count, mesh, Shard(0));
            EXPECT_EQ(full_tensor(counts).to_vector(), Values(2, count.item()))
                << of_x << of_w << of_dy << columns;
          }
  });
}

TEST(LongTapes, AreDroppedWithoutRecursion) {
  on_ranks(1, [](World& world) -> Task<void> {
    const int length = on_cpu() ? 200'000 : 2'000;  // a fake driver takes its time
    const Tensor x = leaf_of(world, {1});
    Tensor y = x;
    for (int i = 0; i < length; ++i) y = view(y, {1});
    y = Tensor();
    const Tensor h = x * 1.0;
    for (int i = 0; i < length / 2; ++i) mul_(h, 1.0);
    co_return;
  });
}

TEST(Distribute, ATensorThatAnOperatorMadeIsRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor made = leaf_of(world, {4}) * 2.0;
    EXPECT_TRUE(says(refusal_of([&] { distribute_tensor(made, mesh, Shard(0)); }), "leaf"));
    EXPECT_FALSE(distribute_tensor(made.detach(), mesh, Shard(0)).requires_grad());
    co_return;
  });
}

// The results of these are not what their backward reads: PyTorch differentiates too.
TEST(Writes, AQuotientAndRunningSumsMayBeChangedInPlace) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor a = leaf_of(world, {2, 3}), b = leaf_of(world, {2, 3});
    const std::function<Tensor()> makes[] = {
        [&] { return a / b; }, [&] { return cumsum(a * b, 1); },
        [&] { return cummax(a * b, 0).values; }, [&] { return cummin(a * b, 1).values; }};
    for (const auto& make : makes) {
      a.set_grad({}), b.set_grad({});
      co_await backward(sum(make() * 2));
      const Values da = a.grad().to_vector(), db = b.grad().to_vector();
      a.set_grad({}), b.set_grad({});
      const Tensor y = make();
      mul_(y, 2);
      co_await backward(sum(y));
      EXPECT_EQ(a.grad().to_vector(), da);
      EXPECT_EQ(b.grad().to_vector(), db);
    }
  });
}

// --- which record runs next ---

// How many collectives had been issued when the host first waited for one.
class IssuedBeforeAwait final : public Observer {
 public:
  explicit IssuedBeforeAwait(World& world) : world_(world) { world.add_observer(this); }
  ~IssuedBeforeAwait() override { world_.remove_observer(this); }
  void issued(const CommEvent&, std::int64_t) override { ++all; }
  void ready(const CommEvent&, std::int64_t, std::int64_t, std::int64_t) override {
    if (before == 0) before = all;
  }
  int all = 0, before = 0;

 private:
  World& world_;
};

// A sum by a product whose weight is cut: the gradient of y is Partial, and reduced before y gets
// it.
Tensor reduced_in_backward(const Tensor& y, const DTensor& weight) {
  const DTensor whole = from_local(y, weight.mesh(), Replicate());
  return sum(matmul(whole, weight));
}

TEST(BackwardOrder, RunsWhatTheNewestRecordDoesNotFeedWhileItsGradientIsInFlight) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor weight = distribute_tensor(counting(world, {3, 4}), mesh, Shard(1));
    const Tensor x = leaf_of(world, {2, 3}), y = leaf_of(world, {2, 3});
    const Tensor first = reduced_in_backward(x * x, weight);
    const Tensor second = reduced_in_backward(y * y, weight);
    const Tensor loss = first + second;
    IssuedBeforeAwait seen(world);
    Task<void> walk = backward(loss);
    co_await std::move(walk);
    EXPECT_EQ(seen.all, 2);
    EXPECT_EQ(seen.before, 2);
    EXPECT_EQ(x.grad().to_vector(), (Values{20, 104, 252, 80, 260, 504}));
    EXPECT_EQ(y.grad().to_vector(), x.grad().to_vector());
  });
}

// y * y is older than what is in flight, and here, but not complete.
TEST(BackwardOrder, WaitsForAGradientThatGoesOnToAnOlderRecord) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor weight = distribute_tensor(counting(world, {3, 4}), mesh, Shard(1));
    const Tensor x = leaf_of(world, {2, 3});
    const Tensor square = x * x;
    const Tensor through = reduced_in_backward(square * 1.0, weight);
    const Tensor beside = sum(square);
    int visits = 0;
    const HookHandle hook = register_hook(square, [&](const Tensor& gradient) {
      ++visits;
      return gradient;
    });
    const Tensor loss = from_local(beside, mesh, Replicate()) + through;
    co_await backward(loss);
    EXPECT_EQ(visits, 1);
    EXPECT_EQ(x.grad().to_vector(), (Values{22, 108, 258, 88, 270, 516}));
  });
}

}  // namespace
}  // namespace coshard::testing
