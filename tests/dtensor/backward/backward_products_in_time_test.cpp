// How long a backward of linear layers takes in virtual time, where a product takes as long as its
// rows say: what it hides of the collective beside it.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/simulate.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::shuffled;

constexpr std::int64_t kRows = 96, kWidth = 8, kRowNs = 10'000;

// Lets a product take kRowNs for each row of its first input, in virtual time.
class TakesTime final : public Observer {
 public:
  explicit TakesTime(World& world) : world_(world) { world.add_observer(this); }
  ~TakesTime() override { world_.remove_observer(this); }
  void computing(std::string_view, ComputeClass what, const DescribeInputs& inputs) override {
    if (what != ComputeClass::Gemm) return;
    const std::string text = inputs();  // "f32[rows,k]…"
    Parker& parker = RankContext::current().parker();
    const std::int64_t until = parker.now() + std::stoll(text.substr(text.find('[') + 1)) * kRowNs;
    while (parker.now() < until) parker.park(until);
  }

 private:
  World& world_;
};

// A layer whose dY is gathered, or whose dX is scattered; of its gradients, dX and perhaps dW.
struct Timed {
  bool gathers = false, learns = false;
  Overlap overlap = Overlap::Always;
};

Task<std::int64_t> backward_ns(World& world, Timed timed) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const auto cut = [&](const Shape& shape, Placement placement) {
    return distribute_tensor(shuffled(world, shape, DType::F32), mesh, placement);
  };
  const std::int64_t n = world.size();
  DTensor x = cut({kRows, kWidth * n}, timed.gathers ? Shard(1) : Shard(0));
  x.set_requires_grad(true);
  DTensor weight = cut({kWidth * n, kWidth * n}, timed.gathers ? Shard(1) : Shard(0));
  weight.set_requires_grad(timed.learns);
  const Tensor taken = timed.gathers ? x : x.redistribute(Replicate()).tensor();
  const std::optional<Placement> target =
      timed.gathers ? std::optional<Placement>(Shard(0)) : std::nullopt;
  Task<Tensor> run = overlapped_linear(taken, weight, Tensor(), target, timed.overlap);
  const Tensor y = co_await std::move(run);
  const Tensor seed = y.detach();
  const TakesTime taking(world);
  world.communicator()->issue(Collective()).wait();
  const std::int64_t begin = world.executor().now();
  Task<void> walk = backward(y, seed);
  co_await std::move(walk);
  Task<void> arrived = arrival_of(Tensors(x.grad()));
  co_await std::move(arrived);
  co_return world.executor().now() - begin;
}

// E on a link on which dY or dX, of all ranks, takes as long as one product of all rows.
double efficiency_of(int ranks, Timed timed) {
  const std::int64_t product_ns = kRows * kRowNs;
  const double bytes = static_cast<double>(kRows * kWidth * ranks * 4);
  WorldOptions options;
  options.ranks = ranks;
  options.link = Link{0, bytes / (static_cast<double>(product_ns) / 1e3)};
  SimOptions sim;
  sim.turn = std::chrono::nanoseconds(1);
  sim.slowest_transfer = std::chrono::nanoseconds(0);
  std::int64_t took = 0;
  const Program program = [&](World& world) -> Task<void> {
    Task<std::int64_t> run = backward_ns(world, timed);
    const std::int64_t ns = co_await std::move(run);
    took = std::max(took, ns);
  };
  simulate(options, program, 1, sim);
  const double collective_ns = static_cast<double>(product_ns) * (ranks - 1) / ranks;
  const std::int64_t computed_ns = product_ns * (timed.learns ? 2 : 1);
  return 1 - static_cast<double>(took - computed_ns) / collective_ns;
}

TEST(BackwardProductsInTime, HideACollectiveAsLongAsTheProductBesideIt) {
  for (const int ranks : {2, 4}) {
    EXPECT_GE(efficiency_of(ranks, {.gathers = true}), 0.97) << ranks;
    EXPECT_GE(efficiency_of(ranks, {.gathers = false}), 0.97) << ranks;
    // A reduction under the weight gradient, whatever the choice.
    for (const Overlap overlap : {Overlap::Off, Overlap::Auto, Overlap::Always})
      EXPECT_GE(efficiency_of(ranks, {.learns = true, .overlap = overlap}), 0.97) << ranks;
    // The control.
    EXPECT_LE(efficiency_of(ranks, {.gathers = true, .overlap = Overlap::Off}), 0.03) << ranks;
    EXPECT_LE(efficiency_of(ranks, {.gathers = false, .overlap = Overlap::Off}), 0.03) << ranks;
  }
}

}  // namespace
}  // namespace coshard
