// The methods of tensors.
#include <gtest/gtest.h>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using Values = std::vector<double>;
using testing::counting;
using testing::on_ranks;

TEST(Tensor, HasTheMethodsOfPyTorch) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2, 3});
    EXPECT_EQ(x.view({3, 2}).shape(), (Shape{3, 2}));
    EXPECT_EQ(x.reshape({6}).flatten().shape(), Shape{6});
    EXPECT_EQ(x.t().to_vector(), (Values{1, 4, 2, 5, 3, 6}));
    EXPECT_EQ(x.transpose(0, 1).contiguous().to_vector(), x.permute({1, 0}).to_vector());
    EXPECT_EQ(x.unsqueeze(0).expand({2, -1, -1}).shape(), (Shape{2, 2, 3}));
    EXPECT_EQ(x.sum().item(), 21);
    EXPECT_EQ(x.sum({0, 1}, true).shape(), (Shape{1, 1}));
    EXPECT_EQ(x.mean(1).to_vector(), (Values{2, 5}));
    EXPECT_EQ(x.max(1).indices.to_vector(), (Values{2, 2}));
    EXPECT_EQ(x.argmax().item(), 5);
    EXPECT_EQ(x.to(DType::I64).dtype(), DType::I64);
    EXPECT_EQ(x.matmul(x.t()).to_vector(), (Values{14, 32, 32, 77}));
    EXPECT_EQ(x[1].to_vector(), (Values{4, 5, 6}));
    EXPECT_EQ(x[-1][0].item(), 4);
    EXPECT_EQ(x.dim(), 2);
    EXPECT_NEAR(x.softmax(-1).sum().item(), 2, 1e-12);
    const Tensor y = x.clone();
    EXPECT_EQ(y.mul_(2).add_(1).id(), y.id());
    EXPECT_EQ(y.to_vector(), (Values{3, 5, 7, 9, 11, 13}));
    co_return;
  });
}

TEST(Tensor, EachMethodDoesWhatTheFunctionOfItsNameDoes) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = counting(world, {2, 3}), row = x[0];
    const Tensor first = zeros({2, 1}, DType::I64), one = ones({1}, DType::I64);
    const std::pair<Tensor, Tensor> alike[] = {
        {x.add(x, 2), add(x, x, 2)},
        {x.sub(row, 2), sub(x, row, 2)},
        {x.mul(row), mul(x, row)},
        {x.div(row), div(x, row)},
        {x.add(3, 2), add(x, 3, 2)},
        {x.sub(3, 2), sub(x, 3, 2)},
        {x.mul(3), mul(x, 3)},
        {x.div(2), div(x, 2)},
        {x.pow(2), pow(x, 2)},
        {x.clamp(2, 5), clamp(x, 2, 5)},
        {x.neg().abs(), abs(neg(x))},
        {x.exp(), exp(x)},
        {x.log(), log(x)},
        {x.sqrt(), sqrt(x)},
        {x.rsqrt(), rsqrt(x)},
        {x.square(), square(x)},
        {x.sub(3).relu(), relu(sub(x, 3))},
        {x.sigmoid(), sigmoid(x)},
        {x.tanh(), tanh(x)},
        {x.sum(0), sum(x, 0)},
        {x.mean(0), mean(x, 0)},
        {x.prod(1), prod(x, 1)},
        {x.amax(0), amax(x, 0)},
        {x.amin(0), amin(x, 0)},
        {x.var(1), var(x, 1)},
        {x.norm(1, 1), vector_norm(x, 1, 1)},
        {x.max(), max(x)},
        {x.min(), min(x)},
        {x.max(1).values, max(x, 1).values},
        {x.min(1).values, min(x, 1).values},
        {x.argmax(1), argmax(x, 1)},
        {x.argmin(1), argmin(x, 1)},
        {x.topk(2, 1).values, topk(x, 2, 1).values},
        {x.cumsum(1), cumsum(x, 1)},
        {x.softmax(1), softmax(x, 1)},
        {x.log_softmax(1), log_softmax(x, 1)},
        {x.gather(1, first), gather(x, 1, first)},
        {x.index_select(0, one), index_select(x, 0, one)},
        {x.tril(), tril(x)},
        {x.triu(1), triu(x, 1)},
        {x.mm(x.t()), mm(x, x.t())},
        {x.narrow(1, 1, 2), narrow(x, 1, 1, 2)},
        {x.select(1, 2), select(x, 1, 2)},
        {x.split(2, 1)[1], split(x, 2, 1)[1]},
        {x.chunk(2, 1)[0], chunk(x, 2, 1)[0]},
        {x.unbind(1)[2], unbind(x, 1)[2]},
    };
    for (std::size_t i = 0; i < std::size(alike); ++i) {
      const auto& [method, function] = alike[i];
      EXPECT_EQ(method.shape(), function.shape()) << "pair " << i;
      EXPECT_EQ(method.to_vector(), function.to_vector()) << "pair " << i;
    }
    co_return;
  });
}

TEST(Tensor, BackwardAndRequiresGradAreMethods) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3}).requires_grad_();
    co_await (x * x).sum().backward();
    EXPECT_EQ(x.grad().to_vector(), (Values{2, 4, 6}));
    EXPECT_TRUE(rand({2}).requires_grad_().requires_grad());
    co_await (x * 1.0).backward(ones({3}, DType::F64));
    EXPECT_EQ(x.grad().to_vector(), (Values{3, 5, 7}));
  });
}

TEST(Tensor, DTensorMethodsHaveTheNamesOfPyTorch) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));
    EXPECT_EQ(x.placements(), Layout(Shard(0)));
    EXPECT_EQ(x.device_mesh(), mesh);
    EXPECT_EQ(x.to_local().shape(), (Shape{2, 2}));
    EXPECT_EQ(x.full_tensor().to_vector(), counting(world, {4, 2}).to_vector());
    const DTensor whole = co_await x.redistribute({Replicate()});
    EXPECT_EQ(whole.to_local().numel(), 8);
  });
}

}  // namespace
}  // namespace coshard
