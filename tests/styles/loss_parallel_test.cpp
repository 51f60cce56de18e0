#include "styles/loss_parallel.h"

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

struct Case {
  Shape logits;
  LossParallelOptions options;
};

// The loss and gradient of cut logits beside those of whole ones by cross_entropy; collectives of
// A115.
Task<void> expect_equal(World& world, Case c) {
  const DeviceMesh mesh = line(world);
  const Tensor full = random(world, c.logits);
  const int dim = normalize_dim(c.options.class_dim, full.ndim(), "test");
  Shape rows = c.logits;
  rows.erase(static_cast<std::size_t>(dim));
  const Tensor targets = integers(world, rows, c.logits[static_cast<std::size_t>(dim)]);

  Tensor plain = full.detach();
  plain.set_requires_grad(true);
  Shape order;
  for (int d = 0; d < full.ndim(); ++d)
    if (d != dim) order.push_back(d);
  order.push_back(dim);
  const Tensor want =
      cross_entropy_rows(contiguous(permute(plain, order)), targets, c.options.reduction,
                         c.options.ignore_index, c.options.label_smoothing);
  Tensor seed = random(world, want.shape());
  co_await backward(want, seed);

  DTensor cut = distribute_tensor(full, mesh, Shard(dim));
  cut.set_requires_grad(true);
  CountingObserver counter(world);
  const Tensor loss = co_await loss_parallel_cross_entropy(cut, targets, c.options);
  const Issued issued = take(counter);
  EXPECT_EQ(issued, Issued{.all_reduce = issued.all_reduce});
  EXPECT_LE(issued.all_reduce, 3);
  EXPECT_EQ(loss.layout(), Layout(Replicate()));
  expect_close(loss, want);
  counter.reset();
  const DTensor gradient = from_local(seed, mesh, Replicate());
  co_await backward(loss, gradient);
  EXPECT_EQ(take(counter), Issued{});
  EXPECT_EQ(cut.grad().layout(), Layout(Shard(dim)));
  expect_close(cut.grad(), plain.grad());
}

TEST(LossParallel, EqualsCrossEntropyForEveryReduction) {  // A115
  for (const int ranks : {1, 2, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      for (const Reduction reduction : {Reduction::None, Reduction::Mean, Reduction::Sum}) {
        {
          const Case one{Shape{8, 16}, {.reduction = reduction}};
          co_await expect_equal(world, one);
        }
        {
          const Case one{Shape{8, 16, 12}, {.reduction = reduction}};
          co_await expect_equal(world, one);
        }
        {
          const Case one{Shape{8, 16, 12}, {.reduction = reduction, .class_dim = 1}};
          co_await expect_equal(world, one);
        }
      }
    });
}

TEST(LossParallel, HandlesUnevenAndEmptyClassShards) {
  for (const int ranks : {3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      {
        const Case one{Shape{5, 13}, {}};
        co_await expect_equal(world, one);
      }
      {
        const Case one{Shape{5, 2}, {.reduction = Reduction::Sum}};
        co_await expect_equal(world, one);
      }
    });
}

TEST(LossParallel, IgnoresTargetsAndSmoothsLabels) {
  on_ranks(2, [](World& world) -> Task<void> {
    {
      const Case one{Shape{9, 7}, {.ignore_index = 2}};
      co_await expect_equal(world, one);
    }
    {
      const Case one{Shape{6, 10}, {.label_smoothing = 0.1}};
      co_await expect_equal(world, one);
    }
    {
      const Case one{Shape{6, 10},
                     {.reduction = Reduction::None, .ignore_index = 3, .label_smoothing = 0.2}};
      co_await expect_equal(world, one);
    }
  });
}

TEST(LossParallel, WeighsClasses) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor full = random(world, Shape{6, 5});
    const Tensor targets = integers(world, Shape{6}, 5);
    const Tensor weight = Tensor::from_values(world.device(), Shape{5}, DType::F64,
                                              std::vector<double>{1, 2, 0.5, 0, 3});
    const Tensor rows = cross_entropy(full, targets, Reduction::None);
    double sum = 0, total = 0;
    const std::vector<double> values = rows.to_vector(), chosen = targets.to_vector();
    for (std::size_t r = 0; r < values.size(); ++r) {
      const double w = weight.to_vector()[static_cast<std::size_t>(chosen[r])];
      sum += w * values[r];
      total += w;
    }
    const DTensor cut = distribute_tensor(full, mesh, Shard(1));
    const LossParallelOptions options;
    const Tensor loss = co_await loss_parallel_cross_entropy(cut, targets, options, weight);
    EXPECT_NEAR(loss.item(), sum / total, 1e-12);
  });
}

TEST(LossParallel, SendsNothingForWholeLogits) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor full = random(world, Shape{6, 5});
    const Tensor targets = integers(world, Shape{6}, 5);
    const DTensor whole = distribute_tensor(full, mesh, Replicate());
    CountingObserver counter(world);
    const Tensor plain = co_await loss_parallel_cross_entropy(full, targets);
    const Tensor replicated = co_await loss_parallel_cross_entropy(whole, targets);
    EXPECT_EQ(take(counter), Issued{});
    EXPECT_FALSE(plain.is_distributed());
    EXPECT_NEAR(plain.item(), cross_entropy(full, targets).item(), 1e-12);
    EXPECT_NEAR(replicated.item(), plain.item(), 1e-12);
  });
}

TEST(LossParallel, RefusesOtherLayoutsShapesAndTargets) {  // A116
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    const Tensor full = random(world, Shape{6, 4});
    const Tensor targets = integers(world, Shape{6}, 4);
    const DTensor rows = distribute_tensor(full, mesh, Shard(0));
    const std::string layout =
        co_await error_of(discard(loss_parallel_cross_entropy(rows, targets)));
    EXPECT_CONTAINS(layout, "loss_parallel");
    EXPECT_CONTAINS(layout, "S(0)");
    const DTensor terms = from_local(full, mesh, Partial());
    const std::string partial =
        co_await error_of(discard(loss_parallel_cross_entropy(terms, targets)));
    EXPECT_CONTAINS(partial, "P(sum)");
    const Tensor few = integers(world, Shape{5}, 4);
    const std::string shape = co_await error_of(discard(loss_parallel_cross_entropy(full, few)));
    EXPECT_CONTAINS(shape, "[6]");
    const Tensor high = integers(world, Shape{6}, 9);
    const std::string range = co_await error_of(discard(loss_parallel_cross_entropy(full, high)));
    EXPECT_CONTAINS(range, "outside of 4 classes");
  });
}

}  // namespace
}  // namespace coshard::testing
