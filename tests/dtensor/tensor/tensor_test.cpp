// What a user of PyTorch types: methods, names, lists in braces, undefined tensors, sizes.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/thrown_by.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using Values = std::vector<double>;
using testing::counting;
using testing::on_ranks;
using testing::thrown_by;

Task<std::int64_t> elements(Tensor x) { co_return x.numel(); }

TEST(Tensor, UndefinedOnesThrowInsteadOfCrashing) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor none, x = counting(world, {2});
    EXPECT_NE(thrown_by([&] { none.ndim(); }).find("undefined"), std::string::npos);
    EXPECT_NE(thrown_by([&] { (none + x).numel(); }).find("undefined"), std::string::npos);
    EXPECT_NE(thrown_by([&] { (x + none).numel(); }).find("undefined"), std::string::npos);
    EXPECT_NE(thrown_by([&] { matmul(x, none); }).find("undefined"), std::string::npos);
    EXPECT_NE(thrown_by([&] { none.grad(); }).find("undefined"), std::string::npos);
    EXPECT_NE(thrown_by([&] { none.item(); }).find("undefined"), std::string::npos);
    EXPECT_NE(thrown_by([&] { none.is_distributed(); }).find("undefined"), std::string::npos);
    Tensor weight = counting(world, {2}).requires_grad_();
    EXPECT_FALSE(weight.grad().defined());
    EXPECT_NE(thrown_by([&] { weight.grad().to_vector(); }).find("backward"), std::string::npos);
    EXPECT_EQ(thrown_by([&] { none.ndim(); }).find('\n'), std::string::npos);
    std::ostringstream text;
    text << none;
    EXPECT_EQ(text.str(), "undefined");
    co_return;
  });
}

TEST(Tensor, ToVectorOfTermsIsRefusedLikeItem) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DTensor x = ones(init_device_mesh(world, {2}), Shard(0), {4}, DType::F64);
    const DTensor total = x.sum();
    EXPECT_NE(thrown_by([&] { total.to_vector(); }).find("P(sum)"), std::string::npos);
    EXPECT_EQ(total.to_local().to_vector(), Values{2});
    EXPECT_EQ(total.full_tensor().to_vector(), Values{4});
    co_return;
  });
}

TEST(Tensor, FromValuesTakesAnyListOfNumbers) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto device = world.device();
    const std::vector<float> floats{1.5F, 2};
    const std::array<int, 2> ints{3, 4};
    EXPECT_EQ(Tensor::from_values(device, {3}, DType::F64, {1, 2.5, -3}).to_vector(),
              (Values{1, 2.5, -3}));
    EXPECT_EQ(Tensor::from_values(device, {2}, DType::F32, floats).to_vector(), (Values{1.5, 2}));
    EXPECT_EQ(Tensor::from_values(device, {2}, DType::I64, ints).to_vector(), (Values{3, 4}));
    EXPECT_EQ(Tensor::from_values(device, {0}, DType::I64, {}).numel(), 0);
    EXPECT_THROW(Tensor::from_values(device, {2}, DType::I64, {1}), Error);
    co_return;
  });
}

// Of these g++ 12 said "array used as initializer", or destroyed something twice.
TEST(Tensor, EveryListInBracesMayStandInsideCoAwait) {
  on_ranks(1, [](World& world) -> Task<void> {
    const auto device = world.device();
    const std::int64_t n = 3;
    EXPECT_EQ(co_await elements(ones(device, {2, 4})), 8);
    EXPECT_EQ(co_await elements(randn(device, {n, n + 1})), 12);
    const Tensor x = counting(world, {2, 3});
    EXPECT_EQ(co_await elements(permute(x, {1, 0})), 6);
    EXPECT_EQ(co_await elements(x.view({n, 2})), 6);
    EXPECT_EQ(co_await elements(sum(x, {0, 1})), 1);
    EXPECT_EQ(co_await elements(flip(x, {0, 1})), 6);
    EXPECT_EQ(co_await elements(pad(x, {1, 1})), 10);
    EXPECT_EQ(co_await elements(movedim(x, {0}, {1})), 6);
    EXPECT_EQ(co_await elements(cat({x, x}, 0)), 12);
    EXPECT_EQ(co_await elements(stack({x, x, x})), 18);
    EXPECT_EQ(co_await elements(split(x, {1, 2}, 1)[1]), 4);
    EXPECT_EQ(co_await elements(Tensor::from_values(device, {2}, DType::F32, {1, 2.5})), 2);
    Tensor leaf = counting(world, {2});
    leaf.requires_grad_();
    const std::vector<Tensor> gradients = co_await grad({leaf.sum(), leaf[0]}, {leaf});
    EXPECT_EQ(gradients[0].to_vector(), (Values{2, 1}));
    leaf.set_grad(full(device, {2}, 3, DType::F64));
    co_await arrival_of({leaf.grad(), x});
    EXPECT_NEAR((co_await clip_grad_norm({leaf}, 1)).item(), 3 * std::sqrt(2), 1e-12);
  });
}

TEST(Tensor, PlacementsAreOptionalAndTwiceDistributedIsOnce) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 1}, {"dp", "tp"});
    const Tensor x = counting(world, {4});
    const Layout whole(Replicate(), Replicate());
    EXPECT_EQ(distribute_tensor(x, mesh).layout(), whole);
    EXPECT_EQ(from_local(x, mesh).layout(), whole);
    EXPECT_EQ(zeros(mesh, {4}).layout(), whole);
    const DefaultMesh scope(mesh);
    EXPECT_EQ(distribute_tensor(x).layout(), whole);
    EXPECT_EQ(from_local(x).layout(), whole);
    const DTensor cut = distribute_tensor(x, mesh, {Shard(0), Replicate()});
    EXPECT_EQ(distribute_tensor(cut, mesh, {Shard(-1), Replicate()}).id(), cut.id());
    EXPECT_NE(thrown_by([&] { distribute_tensor(cut, mesh); }).find("redistribute"),
              std::string::npos);
    co_return;
  });
}

TEST(Tensor, BorrowedMemoryMustNotBeNullUnlessItIsEmpty) {
  on_ranks(1, [](World& world) -> Task<void> {
    try {
      Tensor::borrow(world.device(), nullptr, {4}, DType::F32);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "borrow: data is null for [4]");
    }
    EXPECT_EQ(Tensor::borrow(world.device(), nullptr, {0, 3}, DType::F32).numel(), 0);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
