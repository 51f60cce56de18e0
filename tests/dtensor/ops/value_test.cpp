#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using Values = std::vector<double>;

Tensor values(World& world, const Shape& shape, const Values& v, DType dtype = DType::F64) {
  return Tensor::from_values(world.device(), shape, dtype, v);
}

void expect_near(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-12) << "element " << i;
}

TEST(Matmul, MultipliesMatricesBatchesAndTransposedViews) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor a = counting(world, {2, 3});
    const Tensor b = counting(world, {3, 2});
    EXPECT_EQ(matmul(a, b).to_vector(), (Values{22, 28, 49, 64}));
    EXPECT_EQ(matmul(a, transpose(a, 0, 1)).to_vector(), (Values{14, 32, 32, 77}));
    const Tensor batch = counting(world, {2, 1, 2});
    EXPECT_EQ(matmul(batch, counting(world, {2, 2, 1})).to_vector(), (Values{5, 25}));
    EXPECT_EQ(matmul(batch, counting(world, {2, 1})).shape(), (Shape{2, 1, 1}));
    co_return;
  });
}

TEST(Matmul, RefusesInnerDimensionsThatDifferAndNamesThem) {
  on_ranks(1, [](World& world) -> Task<void> {
    try {
      matmul(counting(world, {2, 3}), counting(world, {4, 2}));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find("[2,3] @ [4,2]"), std::string::npos) << error.what();
    }
    co_return;
  });
}

TEST(Matmul, TheGradientOfATransposedWeightLiesInTheWeightsOrderOfMemory) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor weight = counting(world, {4, 3});
    weight.set_requires_grad(true);
    const Tensor x = counting(world, {2, 3});
    run_backward(sum(matmul(x, transpose(weight, 0, 1))));
    EXPECT_TRUE(weight.grad().is_contiguous());
    EXPECT_EQ(weight.grad().to_vector(), (Values{5, 7, 9, 5, 7, 9, 5, 7, 9, 5, 7, 9}));
    co_return;
  });
}

TEST(MatmulInto, OverwritesOrAddsRows) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor into = zeros(world.device(), {3, 2}, DType::F64);
    const Tensor rows = slice(into, 0, 1, 3);
    const Tensor one = values(world, {1, 2}, {1, 1});
    matmul_into(rows, counting(world, {2, 1}), one);
    matmul_into(rows, counting(world, {2, 1}), one, true);
    EXPECT_EQ(into.to_vector(), (Values{0, 0, 2, 2, 4, 4}));
    EXPECT_THROW(matmul_into(rows, counting(world, {3, 1}), one), Error);
    co_return;
  });
}

TEST(View, SharesMemoryWhereStridesAllowItAndCopiesOtherwise) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2, 3, 4});
    const Tensor flat = view(x, {6, -1});
    EXPECT_EQ(flat.shape(), (Shape{6, 4}));
    EXPECT_EQ(flat.storage(), x.storage());
    const Tensor heads = transpose(view(x, {2, 3, 2, 2}), 1, 2);  // [b,h,t,d]
    EXPECT_EQ(view(transpose(heads, 1, 2), {2, 3, 4}).storage(), x.storage());
    const Tensor turned = view(transpose(x, 1, 2), {2, 12});
    EXPECT_NE(turned.storage(), x.storage());
    EXPECT_EQ(slice(turned, 0, 0, 1).to_vector(), (Values{1, 5, 9, 2, 6, 10, 3, 7, 11, 4, 8, 12}));
    EXPECT_EQ(view(slice(x, 1, 1, 2), {2, 4}).storage(), x.storage());
    EXPECT_THROW(view(x, {5, -1}), Error);
    EXPECT_THROW(view(x, {-1, -1}), Error);
    co_return;
  });
}

TEST(Slice, CountsNegativeIndicesFromTheEndAndSplitKeepsTheRest) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {5});
    EXPECT_EQ(slice(x, 0, -3, -1).to_vector(), (Values{3, 4}));
    EXPECT_EQ(slice(x, 0, 3, 7).to_vector(), (Values{4, 5}));
    EXPECT_THROW(narrow(x, 0, 3, 4), Error);
    const auto pieces = split(x, 2, 0);
    EXPECT_EQ(pieces.size(), 3u);
    EXPECT_EQ(pieces.back().to_vector(), (Values{5}));
    EXPECT_EQ(cat(pieces, 0).to_vector(), x.to_vector());
    co_return;
  });
}

TEST(Mean, AveragesAllOrOneDimension) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2, 3});
    EXPECT_DOUBLE_EQ(mean(x).item(), 3.5);
    EXPECT_EQ(mean(x, 0).to_vector(), (Values{2.5, 3.5, 4.5}));
    EXPECT_EQ(sum(x, -1, true).shape(), (Shape{2, 1}));
    co_return;
  });
}

TEST(CrossEntropy, MeansOverTheTargetsThatCount) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor logits = values(world, {3, 2}, {0, 0, 5, 5, 1, 1});
    logits.set_requires_grad(true);
    const Tensor target = values(world, {3}, {0, -100, 1}, DType::I64);
    const Tensor loss = cross_entropy(logits, target);
    EXPECT_NEAR(loss.item(), std::log(2), 1e-12);
    run_backward(loss);
    expect_near(logits.grad().to_vector(), {-0.25, 0.25, 0, 0, 0.25, -0.25});
    expect_near(cross_entropy(logits, target, Reduction::None).to_vector(),
                {std::log(2), 0, std::log(2)});
    const Tensor high = values(world, {3}, {0, 2, 0}, DType::I64);
    EXPECT_THROW(cross_entropy(logits, high).item(), Error);
    co_return;
  });
}

TEST(Embedding, GivesThePaddingRowNoGradientAndRefusesIdsOutsideTheTable) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor weight = counting(world, {3, 2});
    weight.set_requires_grad(true);
    const Tensor ids = values(world, {3}, {1, 2, 2}, DType::I64);
    const Tensor out = embedding(ids, weight, 1);
    EXPECT_EQ(out.to_vector(), (Values{3, 4, 5, 6, 5, 6}));
    run_backward(sum(out));
    EXPECT_EQ(weight.grad().to_vector(), (Values{0, 0, 0, 0, 2, 2}));
    const Tensor high = values(world, {1}, {3}, DType::I64);
    EXPECT_THROW(embedding(high, weight).to_vector(), Error);
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

TEST(To, CastsTheGradientBack) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3}, DType::BF16);
    x.set_requires_grad(true);
    const Tensor y = to(x, DType::F32);
    EXPECT_EQ(y.dtype(), DType::F32);
    run_backward(sum(y * y));
    EXPECT_EQ(x.grad().dtype(), DType::BF16);
    EXPECT_EQ(x.grad().to_vector(), (Values{2, 4, 6}));
    EXPECT_FALSE(to(x, DType::I64).requires_grad());
    co_return;
  });
}

TEST(Dropout, DropsWithTheGivenProbabilityAndRepeatsInBackward) {
  on_ranks(1, [](World& world) -> Task<void> {
    manual_seed(5);
    Tensor x = ones(world.device(), {10'000}, DType::F64);
    x.set_requires_grad(true);
    const Tensor y = dropout(x, 0.25);
    const Values kept = y.to_vector();
    double dropped = 0;
    for (double v : kept) dropped += v == 0;
    EXPECT_NEAR(dropped / 10'000, 0.25, 0.02);
    EXPECT_NEAR(*std::max_element(kept.begin(), kept.end()), 1 / 0.75, 1e-12);
    run_backward(sum(y));
    EXPECT_EQ(x.grad().to_vector(), kept);
    EXPECT_NE(dropout(x, 0.25).to_vector(), kept);
    EXPECT_EQ(dropout(x, 0.25, false).id(), x.id());
    co_return;
  });
}

TEST(Broadcasting, SumsTheGradientOverStretchedDimensions) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor row = counting(world, {3});
    Tensor column = counting(world, {2, 1});
    row.set_requires_grad(true);
    column.set_requires_grad(true);
    run_backward(sum(row * column));
    EXPECT_EQ(row.grad().to_vector(), (Values{3, 3, 3}));
    EXPECT_EQ(column.grad().to_vector(), (Values{6, 6}));
    EXPECT_THROW(add(row, counting(world, {2})), Error);
    EXPECT_EQ(add(row, counting(world, {3}, DType::F32)).dtype(), DType::F64);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
