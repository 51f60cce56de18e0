// Gradients of the inputs of linear layers, computed as dY arrives and sent as they are computed:
// values and collectives against the plain backward, what runs under what, and where there is no
// schedule.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/backward/finite_guard.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/support/hidden_products.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::on_ranks;
using testing::on_slow_ranks;
using testing::shuffled;
using testing::Values;

// x -> two column-wise layers -> their sum -> a row-wise layer. Small integers: sums are exact.
struct Block {
  Tensor x;  // a shard of the rows, or a plain replica
  DTensor a, b, c;
  std::optional<Placement> between;  // of the rows; nullopt: replicas
  Overlap overlap;

  bool scatters() const { return between.has_value(); }
  Placement output() const { return between.value_or(Replicate()); }
};

struct Case {
  Shape x{6, 8};
  int dim = 0;  // of the rows that are sharded; -1: replicas
  DType dtype = DType::F64;
};

Block block_of(World& world, const DeviceMesh& mesh, const Case& c, Overlap overlap) {
  const auto cut = [&](const Shape& shape, Placement placement) {
    return distribute_tensor(shuffled(world, shape, c.dtype), mesh, placement)
        .set_requires_grad(true);
  };
  const std::int64_t k = c.x.back();
  Block block;
  block.overlap = overlap;
  if (c.dim >= 0) block.between = Shard(c.dim);
  block.x =
      c.dim >= 0 ? cut(c.x, Shard(c.dim)) : shuffled(world, c.x, c.dtype).set_requires_grad(true);
  block.a = cut({6, k}, Shard(0)), block.b = cut({6, k}, Shard(0));
  block.c = cut({k, 6}, Shard(1));
  return block;
}

Task<Tensor> forward(Block block) {
  const Tensor x = block.scatters() ? block.x.redistribute(Replicate()).tensor()
                                    : from_local(block.x, block.a.mesh(), Replicate());
  const Overlap overlap = block.overlap;
  Task<Tensor> first = overlapped_linear(x, block.a, Tensor(), std::nullopt, overlap);
  const Tensor a = co_await std::move(first);
  Task<Tensor> second = overlapped_linear(x, block.b, Tensor(), std::nullopt, overlap);
  const Tensor b = co_await std::move(second);
  Task<Tensor> third = overlapped_linear(add(a, b), block.c, Tensor(), block.output(), overlap);
  co_return co_await std::move(third);
}

Values values_of(const Tensor& x) { return (x.is_distributed() ? full_tensor(x) : x).to_vector(); }

struct Made {
  Values x, a, b, c;
  int all_gathers = 0, reductions = 0, all_to_alls = 0, total = 0;
};
bool operator==(const Made& l, const Made& r) {
  return l.x == r.x && l.a == r.a && l.b == r.b && l.c == r.c;
}

Made gradients_of(const Block& block, const CountingObserver& seen) {
  Made made;
  made.all_gathers = seen.count(CollectiveKind::AllGather);
  made.reductions =
      seen.count(CollectiveKind::ReduceScatter) + seen.count(CollectiveKind::AllReduce);
  made.all_to_alls = seen.count(CollectiveKind::AllToAll);
  made.total = seen.total();
  made.x = values_of(block.x.grad()), made.a = values_of(block.a.grad());
  made.b = values_of(block.b.grad()), made.c = values_of(block.c.grad());
  return made;
}

// Gradients of y, and what backward issued.
Task<Made> walked(World& world, Block block, BackwardOptions options = {}, int times = 1) {
  Task<Tensor> run = forward(block);
  const Tensor y = co_await std::move(run);
  const Tensor seed = y.detach();
  CountingObserver seen(world);
  for (int i = 0; i < times; ++i) {
    Task<void> walk = backward(y, seed, options);
    co_await std::move(walk);
  }
  co_return gradients_of(block, seen);
}

DeviceMesh tp_line(World& world) { return init_device_mesh(world, {world.size()}, {"tp"}); }

Task<Made> made_by(World& world, Case c, Overlap overlap, BackwardOptions options = {},
                   int times = 1) {
  return walked(world, block_of(world, tp_line(world), c, overlap), options, times);
}

const std::vector<Case> kCases{
    {{6, 8}, 0},    {{7, 4}, 0, DType::F32},  {{2, 5, 4}, 1},      {{3, 4, 6}, 0},
    {{1, 3, 4}, 1}, {{16, 8}, 0, DType::F32}, {{6, 8}, -1},        {{2, 5, 4}, -1, DType::F32},
    {{1, 3}, -1},   {{3, 5, 2, 8}, 1},        {{2, 3, 4, 2, 4}, 2}};

TEST(BackwardProducts, HaveTheGradientsOfThePlainBackward) {
  for (const int ranks : {2, 3, 4})
    for (Case c : kCases) {
      if (!testing::on_cpu()) c.dtype = DType::F64;  // a library rounds f32 in an order of its own
      on_ranks(ranks, [&c](World& world) -> Task<void> {
        Task<Made> one = made_by(world, c, Overlap::Off);
        const Made plain = co_await std::move(one);
        Task<Made> two = made_by(world, c, Overlap::Always);
        const Made overlapped = co_await std::move(two);
        EXPECT_TRUE(overlapped == plain) << world.size() << " ranks, " << c.x << " along " << c.dim;
        // The gradient of x is reduced once, by pieces or by way of its rows.
        EXPECT_EQ(plain.total, c.dim < 0 ? 1 : 2);
        EXPECT_EQ(overlapped.all_gathers, plain.all_gathers);
        EXPECT_EQ(overlapped.reductions, c.dim < 0 ? 2 : 0);
        EXPECT_EQ(overlapped.all_to_alls, c.dim < 0 ? 0 : world.size() - 1);
      });
    }
}

TEST(BackwardProducts, RoundLittle) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const int dim : {0, -1}) {
      const auto made = [&](DType dtype, Overlap overlap) {
        return made_by(world, Case{{32, 48}, dim, dtype}, overlap);
      };
      Task<Made> one = made(DType::F64, Overlap::Off);
      const Made exact = co_await std::move(one);
      Task<Made> two = made(DType::F32, Overlap::Always);
      const Made rounded = co_await std::move(two);
      double largest = 0;
      for (const double value : exact.x) largest = std::max(largest, std::abs(value));
      testing::expect_near(rounded.x, exact.x, 1e-5 * largest);
    }
  });
}

TEST(BackwardProducts, WalkAGraphThatIsKeptTwice) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const int dim : {0, -1}) {
      const Case c{{6, 8}, dim};
      Task<Made> one = made_by(world, c, Overlap::Off, {.retain_graph = true}, 2);
      const Made plain = co_await std::move(one);
      Task<Made> two = made_by(world, c, Overlap::Always, {.retain_graph = true}, 2);
      const Made overlapped = co_await std::move(two);
      EXPECT_TRUE(overlapped == plain);
      EXPECT_EQ(overlapped.reductions, dim < 0 ? 4 : 0);
      EXPECT_EQ(overlapped.all_to_alls, dim < 0 ? 0 : 2);
    }
  });
}

// --- order and what runs under what ---

Task<void> expect_equal_order(World& world, const DeviceMesh& mesh) {
  const std::uint64_t mine = mesh.communicator(0).order_hash();
  const Tensor hash = testing::values(world, {1}, {static_cast<double>(mine >> 11)});
  const Values hashes = full_tensor(from_local(hash, mesh, Shard(0))).to_vector();
  for (const double other : hashes) EXPECT_EQ(other, hashes.front());
  co_return;
}

TEST(BackwardProducts, IssueTheSameOnAllRanks) {
  for (const int dim : {0, -1})
    on_ranks(4, [dim](World& world) -> Task<void> {
      const DeviceMesh mesh = tp_line(world);
      Task<Made> walk = walked(world, block_of(world, mesh, {{9, 8}, dim}, Overlap::Always));
      co_await std::move(walk);
      Task<void> same = expect_equal_order(world, mesh);
      co_await std::move(same);
    });
}

Task<int> hidden_in_backward(World& world, int dim, Overlap overlap) {
  const Block block = block_of(world, tp_line(world), {{8, 8}, dim}, overlap);
  Task<Tensor> run = forward(block);
  const Tensor y = co_await std::move(run);
  const Tensor seed = y.detach();
  const testing::HiddenProducts hidden(world);
  Task<void> walk = backward(y, seed);
  co_await std::move(walk);
  co_return hidden.count();
}

TEST(BackwardProducts, RunUnderTheCollectivesAroundThem) {
  on_slow_ranks(2, [](World& world) -> Task<void> {
    // Plain: the three weight gradients under the reduction of x's gradient.
    EXPECT_EQ(co_await hidden_in_backward(world, 0, Overlap::Off), 3);
    EXPECT_EQ(co_await hidden_in_backward(world, -1, Overlap::Off), 3);
    // And dY's own shard under its gather; both products of x's own rows, or of the second piece.
    EXPECT_EQ(co_await hidden_in_backward(world, 0, Overlap::Always), 3 + 1 + 2);
    EXPECT_EQ(co_await hidden_in_backward(world, -1, Overlap::Always), 3 + 2);
  });
}

TEST(BackwardProducts, ArePlainWhereTheGateSaysSo) {
  on_slow_ranks(4, [](World& world) -> Task<void> {  // each piece costs 30 ms
    for (const int dim : {0, -1}) {
      Task<Made> one = made_by(world, {{8, 8}, dim}, Overlap::Off);
      const Made plain = co_await std::move(one);
      Task<Made> two = made_by(world, {{8, 8}, dim}, Overlap::Auto);
      const Made gated = co_await std::move(two);
      EXPECT_TRUE(gated == plain);
      EXPECT_EQ(gated.total, plain.total);
    }
  });
}

TEST(BackwardProducts, ArePlainWhereTheyAreDifferentiatedAgain) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const int dim : {0, -1}) {
      std::vector<Values> second;
      for (const Overlap overlap : {Overlap::Off, Overlap::Always}) {
        const Block block = block_of(world, tp_line(world), {{6, 8}, dim}, overlap);
        Task<Tensor> run = forward(block);
        const Tensor y = co_await std::move(run);
        const Tensor loss = full_tensor(sum(mul(y, y)));
        auto first = grad(Tensors(loss), Tensors(block.x), {}, {.create_graph = true});
        const std::vector<Tensor> dx = co_await std::move(first);
        const Tensor square = sum(mul(dx[0], dx[0]));
        Task<void> again = backward(square.is_distributed() ? full_tensor(square) : square);
        co_await std::move(again);
        second.push_back(values_of(block.a.grad()));
      }
      EXPECT_EQ(second[0], second[1]) << dim;
    }
  });
}

TEST(BackwardProducts, GiveGradientsOfWhatIsAskedForInItsLayout) {
  on_ranks(2, [](World& world) -> Task<void> {
    std::vector<Values> got;
    for (const Overlap overlap : {Overlap::Off, Overlap::Always}) {
      const Block block = block_of(world, tp_line(world), {{6, 8}, 0}, overlap);
      const Tensor x = block.x.redistribute(Replicate()).tensor();
      Task<Tensor> run = overlapped_linear(x, block.a, Tensor(), std::nullopt, overlap);
      const Tensor y = co_await std::move(run);
      auto asked = grad(Tensors(y), Tensors(x, block.x), Tensors(y.detach()));
      const std::vector<Tensor> dx = co_await std::move(asked);
      EXPECT_EQ(dx[0].layout(), Layout(Partial()));
      EXPECT_EQ(dx[1].layout(), Layout(Shard(0)));
      got.push_back(full_tensor(dx[1]).to_vector());
    }
    EXPECT_EQ(got[0], got[1]);
  });
}

// A hook sees the gradient as the plain backward makes it.
TEST(BackwardProducts, ArePlainWhereAHookLooksAtThem) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Block block = block_of(world, tp_line(world), {{6, 8}, 0}, Overlap::Always);
    const Tensor x = block.x.redistribute(Replicate()).tensor();
    Layout seen;
    const auto hook = register_hook(x, [&](const Tensor& dx) {
      seen = dx.layout();
      return Tensor();
    });
    Task<Tensor> run = overlapped_linear(x, block.a, Tensor(), std::nullopt, Overlap::Always);
    const Tensor y = co_await std::move(run);
    Task<void> walk = backward(y, y.detach());
    co_await std::move(walk);
    EXPECT_EQ(seen, Layout(Partial()));
  });
}

TEST(BackwardProducts, ArePlainInABackwardThatDoesNotAwait) {
  on_ranks(2, [](World& world) -> Task<void> {
    Task<Made> awaited = made_by(world, {{6, 8}, 0}, Overlap::Always);
    const Made want = co_await std::move(awaited);
    const Block block = block_of(world, tp_line(world), {{6, 8}, 0}, Overlap::Always);
    Task<Tensor> run = forward(block);
    const Tensor y = co_await std::move(run);
    const CountingObserver seen(world);
    run_backward(y, y.detach());
    const Made got = gradients_of(block, seen);
    EXPECT_TRUE(got == want);
    EXPECT_EQ(got.total, 2);
  });
}

// Gradients of other records at the same tensor are added to the sum of the products.
TEST(BackwardProducts, AddToWhatElseReachesTheirInput) {
  on_ranks(2, [](World& world) -> Task<void> {
    std::vector<Made> made;
    for (const Overlap overlap : {Overlap::Off, Overlap::Always}) {
      const Block block = block_of(world, tp_line(world), {{6, 8}, 0}, overlap);
      const Tensor x = block.x.redistribute(Replicate()).tensor();
      Task<Tensor> first = overlapped_linear(x, block.a, Tensor(), std::nullopt, overlap);
      const Tensor a = co_await std::move(first);
      Task<Tensor> second = overlapped_linear(x, block.b, Tensor(), std::nullopt, overlap);
      const Tensor b = co_await std::move(second);
      const Tensor loss = add(add(sum(mul(a, b)), sum(mul(x, x))), sum(block.c));
      const CountingObserver seen(world);
      Task<void> walk = backward(full_tensor(loss));
      co_await std::move(walk);
      made.push_back(gradients_of(block, seen));
    }
    EXPECT_TRUE(made[0] == made[1]);
  });
}

// More than are kept: some run before there is anything to wait for, all at the end.
TEST(BackwardProducts, LeaveNoGradientBehind) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = tp_line(world);
    std::vector<Block> blocks;
    for (int i = 0; i < 6; ++i)
      blocks.push_back(block_of(world, mesh, {{4, 4}, 0}, Overlap::Always));
    Tensor x = blocks.front().x;
    for (Block& block : blocks) {
      block.x = x;
      Task<Tensor> run = forward(block);
      x = co_await std::move(run);
      x = mul(x, 1e-3);
    }
    Task<void> walk = backward(x, x.detach());
    co_await std::move(walk);
    for (const Block& block : blocks)
      for (const Tensor& weight : {block.a, block.b, block.c}) EXPECT_TRUE(weight.grad().defined());
  });
}

}  // namespace
}  // namespace coshard
