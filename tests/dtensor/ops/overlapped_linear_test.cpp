// overlapped_linear: values, gradients, and what it issues, against linear and redistribute.
#include <gtest/gtest.h>

#include <chrono>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/when_all.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::on_ranks;
using testing::shuffled;
using testing::Values;

// Small integers: sums are exact in any order.
struct Case {
  Shape x;
  std::int64_t out;
  bool bias;
  DType dtype;
};
const Case kCases[] = {
    {{8, 6}, 12, false, DType::F32},         {{7, 5}, 9, true, DType::F64},
    {{2, 9, 4}, 6, true, DType::F32},        {{3, 5, 8}, 4, false, DType::BF16},
    {{1, 3}, 5, true, DType::F64},           {{2, 2, 3, 4}, 8, true, DType::F64},
    {{40, 16}, 24, false, DType::BF16},      {{3, 5, 2, 8}, 6, true, DType::F64},
    {{2, 3, 4, 2, 4}, 6, false, DType::F32},
};

struct Layer {
  DTensor x, weight, bias;
};

Layer layer_of(World& world, const DeviceMesh& mesh, const Case& c, Placement x, Placement weight,
               Placement bias) {
  const auto place = [&](const Shape& shape, Placement placement) {
    const Tensor whole = shuffled(world, shape, c.dtype);
    return distribute_tensor(whole, mesh, Layout(placement), std::nullopt).set_requires_grad(true);
  };
  Layer layer;
  layer.x = place(c.x, x);
  layer.weight = place(Shape{c.out, c.x.back()}, weight);
  if (c.bias) layer.bias = place(Shape{c.out}, bias);
  return layer;
}

struct Made {
  Values y, x_grad, weight_grad, bias_grad;
  Layout layout;
};

Task<Made> made_by(Layer layer, std::optional<Placement> input, std::optional<Placement> target,
                   Overlap overlap) {
  const Tensor x = input ? layer.x.redistribute(*input).tensor() : layer.x;
  Task<Tensor> product = overlapped_linear(x, layer.weight, layer.bias, target, overlap);
  const Tensor y = co_await std::move(product);
  Made made;
  made.layout = y.layout();
  made.y = full_tensor(y).to_vector();
  const Tensor loss = sum(mul(y, y));
  Task<void> pass = backward(loss);
  co_await std::move(pass);
  made.x_grad = full_tensor(layer.x.grad()).to_vector();
  made.weight_grad = full_tensor(layer.weight.grad()).to_vector();
  if (layer.bias.defined()) made.bias_grad = full_tensor(layer.bias.grad()).to_vector();
  co_return made;
}

Task<void> expect_same(World& world, const Case& c, Placement x, std::optional<Placement> input,
                       Placement weight, Placement bias, std::optional<Placement> target) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  Task<Made> one = made_by(layer_of(world, mesh, c, x, weight, bias), input, target, Overlap::Off);
  const Made plain = co_await std::move(one);
  Task<Made> two =
      made_by(layer_of(world, mesh, c, x, weight, bias), input, target, Overlap::Always);
  const Made overlapped = co_await std::move(two);
  EXPECT_EQ(overlapped.layout, plain.layout);
  EXPECT_EQ(overlapped.y, plain.y);
  EXPECT_EQ(overlapped.x_grad, plain.x_grad);
  EXPECT_EQ(overlapped.weight_grad, plain.weight_grad);
  EXPECT_EQ(overlapped.bias_grad, plain.bias_grad);
}

TEST(OverlappedLinear, OfAGatheredInputEqualsThePlainOne) {
  for (const int ranks : {2, 3, 4})
    for (const Case& c : kCases)
      for (int dim = 0; dim + 1 < static_cast<int>(c.x.size()); ++dim)
        on_ranks(ranks, [&c, dim](World& world) {
          SCOPED_TRACE(str_cat(world.size(), " ranks, ", c.x, ' ', c.dtype, " along ", dim));
          return expect_same(world, c, Shard(dim), Replicate(), Shard(0), Shard(0), std::nullopt);
        });
}

TEST(OverlappedLinear, WhoseSumIsScatteredEqualsThePlainOne) {
  for (const int ranks : {2, 3, 4})
    for (const Case& c : kCases)
      for (int dim = 0; dim + 1 < static_cast<int>(c.x.size()); ++dim)
        on_ranks(ranks, [&c, dim](World& world) {
          SCOPED_TRACE(str_cat(world.size(), " ranks, ", c.x, ' ', c.dtype, " along ", dim));
          return expect_same(world, c, Shard(-1), std::nullopt, Shard(1), Replicate(), Shard(dim));
        });
}

TEST(OverlappedLinear, WhoseSumIsReducedEqualsThePlainOne) {
  for (const int ranks : {2, 3, 4})
    for (const Case& c : kCases)
      on_ranks(ranks, [&c](World& world) {
        SCOPED_TRACE(str_cat(world.size(), " ranks, ", c.x, ' ', c.dtype));
        return expect_same(world, c, Shard(-1), std::nullopt, Shard(1), Replicate(), Replicate());
      });
}

TEST(OverlappedLinear, OfPlainTensorsIsLinear) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = shuffled(world, {3, 4}), weight = shuffled(world, {5, 4});
    Task<Tensor> product = overlapped_linear(x, weight, Tensor(), std::nullopt, Overlap::Always);
    const Tensor y = co_await std::move(product);
    EXPECT_EQ(y.to_vector(), linear(x, weight).to_vector());
  });
}

// Layouts for which there is no schedule.
TEST(OverlappedLinear, IsPlainWhereItHasNoSchedule) {
  const Case c{{6, 8}, 4, true, DType::F64};
  on_ranks(2, [&c](World& world) {
    return expect_same(world, c, Replicate(), std::nullopt, Replicate(), Replicate(), Shard(0));
  });
  on_ranks(2, [&c](World& world) {
    return expect_same(world, c, Shard(-1), std::nullopt, Shard(1), Replicate(), Shard(-1));
  });
  on_ranks(2, [&c](World& world) {
    return expect_same(world, c, Shard(-1), Replicate(), Shard(0), Shard(0), std::nullopt);
  });
}

TEST(OverlappedLinear, IssuesTheSameOnAllRanks) {
  const Case c{{9, 8}, 4, false, DType::F32};
  for (const Placement target : {Placement(Shard(0)), Placement(Replicate())})
    on_ranks(3, [&c, target](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
      const Layer layer = layer_of(world, mesh, c, Shard(-1), Shard(1), Replicate());
      CountingObserver seen(world);
      Task<Tensor> product =
          overlapped_linear(layer.x, layer.weight, Tensor(), target, Overlap::Always);
      const Tensor y = co_await std::move(product);
      EXPECT_EQ(seen.total(), 2);  // scattered: to each peer; reduced: two pieces
      const std::uint64_t mine = mesh.communicator(0).order_hash();
      const Tensor hash = Tensor::from_values(world.device(), Shape{1}, DType::F64,
                                              {static_cast<double>(mine >> 11)});
      const DTensor all = from_local(hash, mesh, Shard(0));
      const Values hashes = full_tensor(all).to_vector();
      EXPECT_EQ(hashes[0], hashes[1]);
      EXPECT_EQ(hashes[0], hashes[2]);
    });
}

TEST(OverlappedLinear, SharesAnInputThatArrivesWithItsSiblings) {
  const Case c{{6, 8}, 4, false, DType::F64};
  on_ranks(2, [&c](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Layer a = layer_of(world, mesh, c, Shard(0), Shard(0), Shard(0));
    const Layer b = layer_of(world, mesh, c, Shard(0), Shard(0), Shard(0));
    CountingObserver seen(world);
    const Tensor x = a.x.redistribute(Replicate()).tensor();
    auto both = when_all(overlapped_linear(x, a.weight, Tensor(), std::nullopt, Overlap::Always),
                         overlapped_linear(x, b.weight, Tensor(), std::nullopt, Overlap::Always));
    const auto [first, second] = co_await std::move(both);
    EXPECT_EQ(seen.total(), 1);
    const Values want = full_tensor(linear(x, a.weight)).to_vector();
    EXPECT_EQ(full_tensor(first).to_vector(), want);
    EXPECT_EQ(full_tensor(second).to_vector(), want);
  });
}

// A view has rows of its own.
TEST(OverlappedLinear, TakesAViewOfWhatArrivesAsAWhole) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor whole = shuffled(world, {4, 6, 8});
    const DTensor x = distribute_tensor(whole, mesh, Shard(1));
    const DTensor weight = distribute_tensor(shuffled(world, {4, 8}), mesh, Shard(0));
    const Tensor rows = view(x.redistribute(Replicate()).tensor(), Shape{24, 8});
    Task<Tensor> product = overlapped_linear(rows, weight, Tensor(), std::nullopt, Overlap::Always);
    const Tensor y = co_await std::move(product);
    EXPECT_EQ(full_tensor(y).to_vector(),
              linear(view(whole, Shape{24, 8}), shuffled(world, {4, 8})).to_vector());
  });
}

TEST(OverlappedLinear, OutsideOfTheMeshSuspendsAsOftenAndIssuesNothing) {
  const Case c{{6, 8}, 4, false, DType::F64};
  on_ranks(3, [&c](World& world) -> Task<void> {
    const DeviceMesh mesh = DeviceMesh::from_ranks(world, {0, 1}, {2}, {"tp"});
    for (const bool scatters : {false, true}) {
      const Layer layer = layer_of(world, mesh, c, scatters ? Shard(-1) : Shard(0),
                                   scatters ? Shard(1) : Shard(0), Replicate());
      std::vector<int> order;
      const auto other = [&order](int times) -> Task<void> {
        for (int i = 0; i < times; ++i) {
          order.push_back(i);
          WorkAwaiter nothing{std::shared_ptr<WorkState>()};
          co_await nothing;
        }
      };
      const auto body = [&]() -> Task<void> {
        const Tensor x = scatters ? layer.x : layer.x.redistribute(Replicate()).tensor();
        Task<Tensor> product = overlapped_linear(
            x, layer.weight, Tensor(), scatters ? std::optional<Placement>(Shard(0)) : std::nullopt,
            Overlap::Always);
        const Tensor y = co_await std::move(product);
        order.push_back(100);
      };
      Task<void> both = when_all(body(), other(8));
      co_await std::move(both);
      const auto at = std::ranges::find(order, 100) - order.begin();
      EXPECT_EQ(at, scatters ? 1 : 3) << "rank " << world.rank();
    }
  });
}

TEST(OverlappedLinear, OfAnUnknownLinkIsPlainUnlessAsked) {
  const Case c{{64, 8}, 4, false, DType::F32};
  on_ranks(2, [&c](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Layer layer = layer_of(world, mesh, c, Shard(-1), Shard(1), Replicate());
    CountingObserver seen(world);
    Task<Tensor> product =
        overlapped_linear(layer.x, layer.weight, Tensor(), Replicate(), Overlap::Auto);
    const Tensor y = co_await std::move(product);
    EXPECT_EQ(seen.total(), 1);
  });
}

}  // namespace
}  // namespace coshard
