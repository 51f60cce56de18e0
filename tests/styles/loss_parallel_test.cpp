#include <coshard/styles/loss_parallel.h>

#include <limits>

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

TEST(LossParallel, SendsWhatAllRanksNeedInOneMessage) {
  for (const int ranks : {2, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      const Tensor full = random(world, Shape{6, 9}), targets = integers(world, Shape{6}, 9);
      const DTensor cut = distribute_tensor(full, line(world), Shard(1));
      for (const double smoothing : {0.0, 0.1}) {
        const LossParallelOptions options{.label_smoothing = smoothing};
        CountingObserver counter(world);
        const Tensor loss = co_await loss_parallel_cross_entropy(cut, targets, options);
        EXPECT_EQ(take(counter), Issued{.all_reduce = 1});
      }
    });
}

// As the last rank has them where a vocabulary is padded.
TEST(LossParallel, TakesARankWhoseLogitsAreAllMinusInfinity) {
  on_ranks(3, [](World& world) -> Task<void> {
    Tensor full = random(world, Shape{5, 9});
    fill_(slice(full, 1, 6, 9), -std::numeric_limits<double>::infinity());
    const Tensor targets = integers(world, Shape{5}, 6);
    Tensor plain = full.detach();
    plain.set_requires_grad(true);
    const Tensor want = cross_entropy_rows(plain, targets);
    co_await backward(want);
    DTensor cut = distribute_tensor(full, line(world), Shard(1));
    cut.set_requires_grad(true);
    const Tensor loss = co_await loss_parallel_cross_entropy(cut, targets);
    expect_close(loss, want);
    co_await backward(loss);
    expect_close(cut.grad(), plain.grad());
  });
}

TEST(LossParallel, SendsNothingForPlainLogits) {
  on_ranks(2, [](World& world) -> Task<void> {
    const Tensor full = random(world, Shape{6, 5});
    const Tensor targets = integers(world, Shape{6}, 5);
    CountingObserver counter(world);
    const Tensor plain = co_await loss_parallel_cross_entropy(full, targets);
    EXPECT_EQ(take(counter), Issued{});
    EXPECT_FALSE(plain.is_distributed());
    EXPECT_NEAR(plain.item(), cross_entropy(full, targets).item(), 1e-12);
  });
}

struct Laid {
  std::vector<int> mesh;
  Shape shape;
  Layout logits, targets, none, summed;
  int class_dim = 1;
};

// The loss of laid-out logits beside that of plain ones, with weights, smoothing and an ignored
// class.
Task<void> expect_equal_laid(World& world, Laid c, Reduction reduction) {
  const DeviceMesh mesh = init_device_mesh(world, c.mesh);
  const Tensor full = random(world, c.shape);
  Shape rows = c.shape;
  rows.erase(static_cast<std::size_t>(c.class_dim));
  const std::int64_t classes = c.shape[static_cast<std::size_t>(c.class_dim)];
  const Tensor targets = integers(world, rows, classes);
  const Tensor weight = add(rand(world.device(), Shape{classes}, DType::F64), 0.5);
  const LossParallelOptions options{
      .reduction = reduction, .ignore_index = 2, .label_smoothing = 0.1, .class_dim = c.class_dim};
  Tensor plain = full.detach();
  plain.set_requires_grad(true);
  const Tensor want = co_await loss_parallel_cross_entropy(plain, targets, options, weight);
  const Tensor seed = random(world, want.shape());
  co_await backward(want, seed);

  DTensor cut = distribute_tensor(full, mesh, c.logits);
  cut.set_requires_grad(true);
  const DTensor cut_targets = distribute_tensor(targets, mesh, c.targets);
  const Tensor both[] = {cut_targets, targets};
  for (const Tensor& given : both) {
    CountingObserver counter(world);
    const Tensor loss = co_await loss_parallel_cross_entropy(cut, given, options, weight);
    const Issued issued = take(counter);
    EXPECT_EQ(issued, Issued{.all_reduce = issued.all_reduce});
    EXPECT_LE(issued.all_reduce, reduction == Reduction::Mean ? 3 : 2);
    EXPECT_EQ(loss.layout(), reduction == Reduction::None ? c.none : c.summed);
    expect_close(loss, want);
    counter.reset();
    const Layout whole = Layout::filled(mesh.ndim(), Replicate());
    cut.set_grad({});
    const DTensor gradient = from_local(seed, mesh, whole);
    co_await backward(loss, gradient);
    EXPECT_EQ(take(counter), Issued{});
    EXPECT_EQ(cut.grad().layout(), c.logits);
    expect_close(cut.grad(), plain.grad());
  }
}

const Laid kLaid[] = {{{2, 2},
                       Shape{8, 6},
                       Layout(Shard(0), Shard(1)),
                       Layout(Shard(0), Replicate()),
                       Layout(Shard(0), Replicate()),
                       Layout(Partial(), Replicate())},
                      {{2, 2},
                       Shape{5, 7},
                       Layout(Shard(1), Shard(0)),
                       Layout(Replicate(), Shard(0)),
                       Layout(Replicate(), Shard(0)),
                       Layout(Replicate(), Partial())},
                      {{2, 2},
                       Shape{6, 5},
                       Layout(Replicate(), Shard(1)),
                       Layout(Replicate(), Replicate()),
                       Layout(Replicate(), Replicate()),
                       Layout(Replicate(), Replicate())},
                      {{2, 2},
                       Shape{4, 5, 6},
                       Layout(Shard(2), Shard(1)),
                       Layout(Shard(1), Replicate()),
                       Layout(Shard(1), Replicate()),
                       Layout(Partial(), Replicate())},
                      {{2, 2, 2},
                       Shape{4, 3, 6},
                       Layout(Shard(0), Shard(2), Shard(1)),
                       Layout(Shard(0), Shard(1), Replicate()),
                       Layout(Shard(0), Shard(1), Replicate()),
                       Layout(Partial(), Partial(), Replicate())},
                      {{2, 2},
                       Shape{3, 4, 9},
                       Layout(Shard(1), Shard(2)),
                       Layout(Shard(1), Replicate()),
                       Layout(Shard(1), Replicate()),
                       Layout(Partial(), Replicate()),
                       2}};

TEST(LossParallel, WorksOnMeshesOfSeveralDimensions) {  // A117, A118, A119
  for (const Laid& laid : kLaid)
    for (const Reduction reduction : {Reduction::None, Reduction::Mean, Reduction::Sum})
      on_ranks(laid.mesh.size() == 3 ? 8 : 4,
               [&](World& world) { return expect_equal_laid(world, laid, reduction); });
}

TEST(LossParallel, SmoothsLabelsByClassWeights) {
  on_ranks(2, [](World& world) -> Task<void> {
    constexpr double kSmoothing = 0.3;
    const Tensor full = random(world, Shape{4, 5});
    const Tensor targets = integers(world, Shape{4}, 5);
    const std::vector<double> w{1, 2, 0.5, 0, 3}, x = full.to_vector(), t = targets.to_vector();
    double sum = 0, total = 0;
    for (std::size_t r = 0; r < 4; ++r) {
      double exponentials = 0, spread = 0;
      for (std::size_t c = 0; c < 5; ++c) exponentials += std::exp(x[r * 5 + c]);
      const double log_sum = std::log(exponentials);
      for (std::size_t c = 0; c < 5; ++c) spread += w[c] * (log_sum - x[r * 5 + c]);
      const auto target = static_cast<std::size_t>(t[r]);
      sum += (1 - kSmoothing) * w[target] * (log_sum - x[r * 5 + target]) + kSmoothing / 5 * spread;
      total += w[target];
    }
    const DTensor cut = distribute_tensor(full, line(world), Shard(1));
    const Tensor weight = Tensor::from_values(world.device(), Shape{5}, DType::F64, w);
    const LossParallelOptions options{.label_smoothing = kSmoothing};
    const Tensor loss = co_await loss_parallel_cross_entropy(cut, targets, options, weight);
    EXPECT_NEAR(loss.item(), sum / total, 1e-12);
  });
}

TEST(LossParallel, RefusesLayoutsOfSeveralDimensions) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Tensor full = random(world, Shape{6, 4});
    const Tensor targets = integers(world, Shape{6}, 4);
    const Layout refused[] = {Layout(Shard(1), Shard(1)), Layout(Replicate(), Shard(0)),
                              Layout(Partial(), Shard(1))};
    for (const Layout& layout : refused) {
      const DTensor logits = distribute_tensor(full, mesh, layout);
      const std::string text =
          co_await error_of(discard(loss_parallel_cross_entropy(logits, targets)));
      EXPECT_CONTAINS(text, "exactly one mesh dimension must cut the classes");
    }
    const DTensor logits = distribute_tensor(full, mesh, Layout(Shard(0), Shard(1)));
    const DTensor elsewhere = distribute_tensor(targets, line(world), Replicate());
    const std::string text =
        co_await error_of(discard(loss_parallel_cross_entropy(logits, elsewhere)));
    EXPECT_CONTAINS(text, "targets");
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
    const DTensor whole = distribute_tensor(full, mesh, Replicate());
    const std::string replicas =
        co_await error_of(discard(loss_parallel_cross_entropy(whole, targets)));
    EXPECT_CONTAINS(replicas, "exactly one mesh dimension");
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
