// The methods of tensors.
#include <gtest/gtest.h>

#include <coshard/dtensor/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape.h>
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

}  // namespace
}  // namespace coshard
