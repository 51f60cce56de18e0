// What a user of PyTorch types: methods, names, lists in braces, undefined tensors, sizes.
#include <gtest/gtest.h>

#include <coshard/dtensor/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using Values = std::vector<double>;

std::string thrown_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "nothing";
}

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

TEST(Tensor, DTensorMethodsAndMeshMethodsHaveTheNamesOfPyTorch) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));
    EXPECT_EQ(x.placements(), Layout(Shard(0)));
    EXPECT_EQ(x.device_mesh(), mesh);
    EXPECT_EQ(x.to_local().shape(), (Shape{2, 2}));
    EXPECT_EQ(x.full_tensor().to_vector(), counting(world, {4, 2}).to_vector());
    const DTensor whole = co_await x.redistribute({Replicate()});
    EXPECT_EQ(whole.to_local().numel(), 8);
    EXPECT_EQ(mesh.mesh_dim_names(), std::vector<std::string>{"tp"});
    EXPECT_EQ(mesh.get_rank(), world.rank());
    EXPECT_EQ(mesh.get_local_rank(), world.rank());
    EXPECT_EQ(mesh.get_local_rank("tp"), world.rank());
    EXPECT_EQ(mesh.get_local_rank(0), world.rank());
    EXPECT_EQ(mesh.get_coordinate(), std::vector<int>{world.rank()});
    EXPECT_EQ(mesh.get_group().size(), 2);
    EXPECT_EQ(&mesh.get_group("tp"), &mesh.get_group(0));
    EXPECT_EQ(mesh.device_type(), world.device()->kind());
  });
}

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

template <class T>
concept TakesAssignmentToAnElement = requires(T x) {
  x[0] = x;
};
// It would change a handle that is gone, and write nothing.
static_assert(!TakesAssignmentToAnElement<Tensor>);

TEST(Tensor, NegativeSizesAndOverflowAreRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const std::int64_t huge = std::int64_t{1} << 32;
    const auto device = world.device();
    const DeviceMesh mesh = init_device_mesh(world, {2});
    const Tensor one = zeros({1, 1}, DType::F64);
    const std::vector<std::function<void()>> calls{
        [&] {
          Tensor::empty(device, {huge, huge}, DType::F32);
        },
        [&] { Tensor::empty(device, {-1}, DType::F32); },
        [&] { Tensor::empty(device, {std::int64_t{1} << 60}, DType::F64); },
        [&] {
          zeros({huge, huge});
        },
        [&] {
          rand(device, {2, -3});
        },
        [&] {
          zeros(mesh, Shard(0), {huge, huge});
        },
        [&] {
          zeros(mesh, {2, -1});
        },
        [&] {
          one.expand({huge, huge});
        },
        [&] {
          one.repeat({huge, huge});
        },
        [&] {
          one.repeat({1, -1});
        },
        [&] {
          one.expand({std::int64_t{1} << 30, std::int64_t{1} << 30});
        },
        [&] {
          zeros(mesh, {1, 1}).expand({huge, huge});
        },
        [&] {
          from_local(one, mesh, Shard(0), {.shape = Shape{-2, 1}});
        },
        [&] {
          distribute_tensor(one, mesh).repeat({huge, huge});
        },
        [&] { randint(0, 4, {-2}); },
        [&] { eye(-1); },
    };
    for (std::size_t i = 0; i < calls.size(); ++i)
      EXPECT_NE(thrown_by(calls[i]), "nothing") << "call " << i;
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

Task<std::int64_t> elements(Tensor x) { co_return x.numel(); }

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

TEST(Tensor, ANinthDimensionIsAnErrorThatNamesTheOperator) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor x = ones(world, {1, 1, 1, 1, 1, 1, 1, 4});
    EXPECT_EQ(thrown_by([&] { x.unsqueeze(0); }).find("unsqueeze: f32[1,1,1,1,1,1,1,4] has"), 0U);
    EXPECT_EQ(thrown_by([&] { stack({x, x}); }).find("unsqueeze: f32[1,1,1,1,1,1,1,4] has"), 0U);
    EXPECT_EQ(thrown_by([&] { x.unflatten(-1, {2, 2}); }).find("unflatten: dimension -1 of"), 0U);
    EXPECT_EQ(x.squeeze(0).unflatten(-1, {2, 2}).ndim(), 8);
    co_return;
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

}  // namespace
}  // namespace coshard
