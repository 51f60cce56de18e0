#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::on_ranks;
using Values = std::vector<double>;
using testing::expect_near;
using testing::placed;
using testing::without_moving;

Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
            std::optional<double> scale, bool enable_gqa) {
  return scaled_dot_product_attention(q, k, v, mask, 0.0, is_causal, scale, enable_gqa);
}

Tensor drawn(World& world, const Shape& shape) { return randn(world.device(), shape, DType::F64); }

DTensor drawn_on(World& world, const DeviceMesh& mesh, const Shape& shape, Layout layout) {
  return distribute_tensor(drawn(world, shape), mesh, layout, std::nullopt);
}

void expect_near(const Tensor& got, const Tensor& want) {
  const Values a = got.to_vector(), b = want.to_vector();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-10) << "element " << i;
}

TEST(ScaledDotProductAttention, EqualsSoftmaxOfScoresPlusMaskTimesValues) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor q = drawn(world, {2, 3, 4, 5}), k = drawn(world, {2, 3, 6, 5});
    Tensor v = drawn(world, {2, 3, 6, 2}), mask = drawn(world, {3, 1, 6});
    std::vector<Values> gradients[2];
    Tensor result[2];
    for (int way : {0, 1}) {
      std::vector<Tensor> in{q.detach(), k.detach(), v.detach(), mask.detach()};
      for (Tensor& x : in) x = copy_of(x).set_requires_grad(true);
      const Tensor scores = matmul(in[0], transpose(in[1], 2, 3)) * 0.3;
      result[way] = way == 0 ? sdpa(in[0], in[1], in[2], in[3], false, 0.3, false)
                             : matmul(softmax(add(scores, in[3]), -1), in[2]);
      run_backward(sum(result[way] * result[way]));
      for (const Tensor& x : in) gradients[way].push_back(x.grad().to_vector());
    }
    expect_near(result[0], result[1]);
    for (int i = 0; i < 4; ++i)
      for (std::size_t j = 0; j < gradients[0][i].size(); ++j)
        EXPECT_NEAR(gradients[0][i][j], gradients[1][i][j], 1e-10) << i << " element " << j;
    co_return;
  });
}

TEST(ScaledDotProductAttention, IsCausalFromTheFirstKeyWhereAttentionIsFromTheLast) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor q = drawn(world, {1, 1, 2, 3}), k = drawn(world, {1, 1, 4, 3});
    const Tensor first = sdpa(q, k, k, {}, true, std::nullopt, false);
    expect_near(slice(first, 2, 0, 1), slice(k, 2, 0, 1));
    const Tensor all = sdpa(q, k, k, {}, false, std::nullopt, false);
    expect_near(slice(attention(q, k, k), 2, 1, 2), slice(all, 2, 1, 2));
    co_return;
  });
}

TEST(ScaledDotProductAttention, GivesZeroToAQueryWhoseKeysAreAllMasked) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor q = drawn(world, {1, 1, 2, 3});
    q.set_requires_grad(true);
    const Tensor keep =
        Tensor::from_values(world.device(), Shape{2, 2}, DType::Bool, Values{0, 0, 1, 0});
    const Tensor y = sdpa(q, q, q, keep, false, std::nullopt, false);
    EXPECT_EQ(slice(y, 2, 0, 1).to_vector(), (Values{0, 0, 0}));
    expect_near(slice(y, 2, 1, 2), slice(q, 2, 0, 1));
    run_backward(sum(y));
    EXPECT_EQ(q.grad().to_vector(), (Values{1, 1, 1, 0, 0, 0}));
    co_return;
  });
}

TEST(ScaledDotProductAttention, RefusesMasksBesideIsCausalAndGroupsThatWereNotAskedFor) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor q = drawn(world, {1, 2, 2, 3}), k = drawn(world, {1, 1, 2, 3});
    const Tensor mask = drawn(world, {2, 2});
    EXPECT_THROW(sdpa(q, k, k, {}, false, std::nullopt, false), Error);
    EXPECT_NO_THROW(sdpa(q, k, k, {}, false, std::nullopt, true));
    EXPECT_THROW(sdpa(q, q, q, mask, true, std::nullopt, false), Error);
    EXPECT_THROW(sdpa(q, q, q, drawn(world, {3, 2}), false, std::nullopt, false), Error);
    EXPECT_THROW(sdpa(q, q, q, to(mask, DType::F32), false, std::nullopt, false), Error);
    co_return;
  });
}

// Batch and heads cut along two mesh dimensions, groups of heads and queries cut: nothing moves,
// forward or backward, and gradients keep the placements.
TEST(AttentionLayout, MovesNothingWhereBatchHeadsOrQueriesAreCut) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    for (const Layout& cut : {Layout(Shard(0), Shard(1)), Layout(Shard(1), Replicate()),
                              Layout(Replicate(), Shard(0))}) {
      DTensor q = drawn_on(world, mesh, {3, 4, 3, 2}, cut);
      DTensor k = drawn_on(world, mesh, {3, 2, 5, 2}, cut);
      q.set_requires_grad(true);
      k.set_requires_grad(true);
      CountingObserver seen(world);
      const DTensor y = sdpa(q, k, k, {}, true, std::nullopt, true);
      EXPECT_EQ(y.layout(), cut);
      run_backward(y, drawn_on(world, mesh, {3, 4, 3, 2}, cut));
      EXPECT_EQ(seen.total(), 0);
      EXPECT_EQ(q.grad().layout(), cut);
      EXPECT_EQ(k.grad().layout(), cut);
    }
    co_return;
  });
}

TEST(AttentionLayout, CutQueriesKnowWhichKeysTheySee) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"cp"});
    const Tensor q = drawn(world, {1, 2, 7, 4}), k = drawn(world, {1, 2, 7, 4});
    const DTensor cut = distribute_tensor(q, mesh, Shard(2), std::nullopt);
    const DTensor keys = distribute_tensor(k, mesh, Replicate(), std::nullopt);
    CountingObserver seen(world);
    const DTensor y = sdpa(cut, keys, keys, {}, true, std::nullopt, false);
    EXPECT_EQ(seen.total(), 0);
    EXPECT_EQ(y.layout(), Layout(Shard(2)));
    expect_near(full_tensor(y), sdpa(q, k, k, {}, true, std::nullopt, false));
    co_return;
  });
}

TEST(AttentionLayout, AMaskIsCutWithTheScores) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor q = drawn_on(world, mesh, {2, 3, 3, 2}, Shard(1));
    DTensor mask = drawn_on(world, mesh, {3, 3, 3}, Replicate());
    mask.set_requires_grad(true);
    CountingObserver seen(world);
    const DTensor y = sdpa(q, q, q, mask, false, std::nullopt, false);
    EXPECT_EQ(y.layout(), Layout(Shard(1)));
    run_backward(y, drawn_on(world, mesh, {2, 3, 3, 2}, Shard(1)));
    EXPECT_EQ(seen.count(CollectiveKind::AllGather), 1);  // the mask's gradient, for its Replicate
    EXPECT_EQ(seen.total(), 1);
    co_return;
  });
}

TEST(AttentionLayout, PartialValuesPass) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor q = drawn_on(world, mesh, {1, 1, 3, 2}, Replicate());
    q.set_requires_grad(true);
    const DTensor v = drawn_on(world, mesh, {1, 1, 3, 2}, Partial());
    CountingObserver seen(world);
    const DTensor y = sdpa(q, q, v, {}, false, std::nullopt, false);
    EXPECT_EQ(y.layout(), Layout(Partial()));
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

TEST(Attention, OfAWindowSeesTheLastKeysAlone) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"cp"});
    const Tensor q = drawn(world, {1, 2, 7, 4}), k = drawn(world, {1, 2, 7, 4});
    Values keep;
    for (int i = 0; i < 7; ++i)
      for (int j = 0; j < 7; ++j) keep.push_back(j <= i && j > i - 3 ? 1 : 0);
    const Tensor mask = Tensor::from_values(world.device(), Shape{7, 7}, DType::Bool, keep);
    const Tensor want = sdpa(q, k, k, mask, false, std::nullopt, false);
    expect_near(attention(q, k, k, true, std::nullopt, 3), want);
    const DTensor cut = distribute_tensor(q, mesh, Shard(2), std::nullopt);
    const DTensor keys = distribute_tensor(k, mesh, Replicate(), std::nullopt);
    expect_near(full_tensor(attention(cut, keys, keys, true, std::nullopt, 3)), want);
    EXPECT_THROW(attention(q, k, k, false, std::nullopt, 3), Error);
    EXPECT_THROW(attention(q, k, k, true, std::nullopt, -1), Error);
    co_return;
  });
}

TEST(Attention, LeavesItsResultInTheOrderOfPositions) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor q = rand(world.device(), {2, 3, 4, 2}, DType::F64);
    const Tensor out = attention(q, q, q);
    const Tensor joined = view(transpose(out, 1, 2), {2, 4, 6});
    EXPECT_EQ(joined.storage(), out.storage());
    // the first query sees the first key only
    expect_near(slice(out, 2, 0, 1).to_vector(), slice(q, 2, 0, 1).to_vector());
    co_return;
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

TEST(AttentionLayout, HeadsAreCutFreelyWhereKeyHeadsDivide) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor q = placed(world, mesh, {1, 4, 3, 2}, Shard(1));
    const DTensor k = placed(world, mesh, {1, 2, 3, 2}, Shard(1));
    EXPECT_EQ(attention(q, k, k).layout(), Layout(Shard(1)));
  });
}

}  // namespace
}  // namespace coshard
