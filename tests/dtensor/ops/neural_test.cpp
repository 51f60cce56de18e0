// Layers as PyTorch's users call them: dropout in attention, soft targets, padding rows, dtypes.
// The numbers are those of PyTorch.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::on_ranks;
using Values = std::vector<double>;

void expect_near(const Tensor& got, const Values& want, double tolerance = 1e-10) {
  const Values values = got.to_vector();
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], tolerance) << i;
}

Tensor logits() { return (arange(1, 13).view({3, 4}).to(DType::F64) * 0.25).requires_grad_(); }
Tensor soft_targets() { return softmax(flip(logits().detach() * 2, {1}), 1).requires_grad_(); }

TEST(CrossEntropy, TakesProbabilitiesAsTargets) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = logits(), t = soft_targets();
    const Tensor weight = Tensor::from_values(world.device(), {4}, DType::F64, {1, 2, 3, 4});
    expect_near(cross_entropy(x, t), {1.5711605261744161});
    expect_near(cross_entropy(x, t, Reduction::Sum), {4.713481578523249});
    expect_near(cross_entropy(x, t, Reduction::None), Values(3, 1.5711605261744161));
    expect_near(cross_entropy(x, t, Reduction::Mean, -100, 0.1), {1.5565461139628696});
    expect_near(cross_entropy(x, t, Reduction::Mean, -100, 0, weight), {2.7540749509432247});
    const Tensor loss = cross_entropy(x, t, Reduction::Mean, -100, 0.1, weight);
    expect_near(loss, {2.8036715568636397});
    co_await loss.backward();
    expect_near(x.grad()[1], {-0.036091267172129286, -0.04262080535566483, 0.0036475949361952737,
                              0.07506447759159886});
    expect_near(t.grad()[2],
                {0.5400049212176851, 0.93000984243537, 1.1700147636530551, 1.2600196848707401});
    const Tensor x3 = logits().detach().view({2, 3, 2});
    expect_near(cross_entropy(x3, softmax(flip(x3, {1}), 1)), {1.3403480045566378});
    EXPECT_THROW(cross_entropy(x, t, Reduction::Mean, 2), Error);
    EXPECT_THROW(cross_entropy(x, t[0]), Error);
  });
}

TEST(CrossEntropy, OfCutProbabilitiesIsThatOfTheWhole) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2});
    for (const Placement p : {Shard(0), Shard(1), Replicate()}) {
      DTensor x = distribute_tensor(logits(), mesh, p);
      const DTensor loss = cross_entropy(x, distribute_tensor(soft_targets(), mesh, p));
      expect_near(loss.full_tensor(), {1.5711605261744161});
      co_await loss.backward();
      EXPECT_TRUE(x.grad().defined());
    }
  });
}

TEST(Embedding, CountsThePaddingRowFromTheEnd) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor weight = ones({3, 2}, DType::F64, true);
    const Tensor ids = Tensor::from_values(world.device(), {3}, DType::I64, {0, 2, 2});
    co_await embedding(ids, weight, -1).sum().backward();
    EXPECT_EQ(weight.grad().to_vector(), (Values{1, 1, 0, 0, 0, 0}));
    EXPECT_THROW(embedding(ids, weight, 7), Error);
    EXPECT_THROW(embedding(ids, weight, 3), Error);
    EXPECT_THROW(embedding(ids, weight, -4), Error);
    const Tensor other = ones({3, 2}, DType::F64, true);
    co_await embedding(ids, other).sum().backward();
    EXPECT_EQ(other.grad().to_vector(), (Values{1, 1, 0, 0, 2, 2}));
  });
}

TEST(Softmax, CastsFirst) {
  on_ranks(1, [](World&) -> Task<void> {
    const Tensor x = randn({4, 5}, DType::BF16, true);
    const Tensor y = softmax(x, -1, DType::F32);
    EXPECT_EQ(y.dtype(), DType::F32);
    EXPECT_EQ(y.to_vector(), softmax(x.to(DType::F32), -1).to_vector());
    EXPECT_EQ(x.log_softmax(0, DType::F64).dtype(), DType::F64);
    co_await (y * y).sum().backward();
    EXPECT_EQ(x.grad().dtype(), DType::BF16);
  });
}

TEST(ScaledDotProductAttention, WorksWithoutBatchAndHeads) {
  on_ranks(1, [](World&) -> Task<void> {
    const Tensor q = randn({2, 3, 4}, DType::F64), k = randn({2, 5, 4}, DType::F64);
    const Tensor mask = randn({2, 3, 5}, DType::F64);
    const Tensor three = scaled_dot_product_attention(q, k, k, mask);
    EXPECT_EQ(three.shape(), (Shape{2, 3, 4}));
    const Tensor four = scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), k.unsqueeze(0),
                                                     mask.unsqueeze(0));
    EXPECT_EQ(three.to_vector(), four.to_vector());
    EXPECT_EQ(scaled_dot_product_attention(q[1], k[1], k[1], mask[1]).to_vector(),
              three[1].to_vector());
    EXPECT_THROW(scaled_dot_product_attention(q, k[0], k[0]), Error);
    EXPECT_THROW(scaled_dot_product_attention(q[0][0], k[0][0], k[0][0]), Error);
    co_return;
  });
}

TEST(ScaledDotProductAttention, DropsWeightsAndScalesTheRest) {
  on_ranks(1, [](World&) -> Task<void> {
    const Tensor q = zeros({1, 2, 8, 4}, DType::F64, true), k = zeros({1, 2, 100, 4}, DType::F64);
    const Tensor v = ones({1, 2, 100, 1}, DType::F64);
    const Tensor y = scaled_dot_product_attention(q, k, v, {}, 0.5);
    EXPECT_NEAR(y.mean().item(), 1, 0.1);  // each element: kept weights times 2
    EXPECT_GT(y.var().item(), 1e-4);
    EXPECT_THROW(scaled_dot_product_attention(q, k, v, {}, 1.5), Error);
    EXPECT_THROW(scaled_dot_product_attention(q, k, v, {}, -0.1), Error);
    co_await y.sum().backward();
    EXPECT_TRUE(q.grad().defined());
  });
}

// A probability so small that nothing is dropped: the weights that are kept for it must be those
// that are not.
TEST(ScaledDotProductAttention, WithDropoutIsTheSameFunction) {
  on_ranks(2, [](World& world) -> Task<void> {
    constexpr double kHardly = 1e-12;
    const DeviceMesh mesh = init_device_mesh(world, {2});
    const Tensor q = randn({2, 4, 3, 4}, DType::F64), k = randn({2, 2, 5, 4}, DType::F64);
    const Tensor keep = Tensor::from_values(world.device(), {3, 5}, DType::F64,
                                            {1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}) > 0;
    const Tensor bias = randn({3, 5}, DType::F64);
    for (const Tensor& mask : {Tensor(), keep, bias})
      for (const bool causal : {false, true}) {
        if (mask.defined() && causal) continue;
        const auto run = [&](const Tensor& a, const Tensor& b, const Tensor& m, double p) {
          return scaled_dot_product_attention(a, b, b, m, p, causal, 0.3, true);
        };
        const Values want = run(q, k, mask, 0).to_vector();
        expect_near(run(q, k, mask, kHardly), want);
        const auto cut = [&](const Tensor& x) { return distribute_tensor(x, mesh, Shard(1)); };
        const Tensor m = mask.defined() ? distribute_tensor(mask, mesh) : mask;
        expect_near(run(cut(q), cut(k), m, kHardly).full_tensor(), want);
      }
    co_return;
  });
}

TEST(ScaledDotProductAttention, DropsTheSameInEveryLayout) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2});
    const Tensor q = randn({2, 2, 3, 4}, DType::F64);
    manual_seed(7);
    const Values want = scaled_dot_product_attention(q, q, q, {}, 0.4).to_vector();
    for (const Placement p : {Shard(0), Shard(1), Replicate()}) {
      const DTensor cut = distribute_tensor(q, mesh, p);
      manual_seed(7);
      expect_near(scaled_dot_product_attention(cut, cut, cut, {}, 0.4).full_tensor(), want);
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard
