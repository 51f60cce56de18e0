#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing::tensor_gradient_tests {
namespace {

TEST(RequiresGrad, IsForFloatingLeavesOnly) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor ids = counting(world, {3}, DType::I64);
    EXPECT_THROW(ids.set_requires_grad(true), Error);
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    Tensor y = x * 2.0;
    EXPECT_THROW(y.set_requires_grad(false), Error);
    co_return;
  });
}

TEST(Grad, IsSetToWhatFitsTheTensor) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = leaf_of(world, {2});
    const auto set = [&](const Tensor& of, const Tensor& g) {
      return refusal_of([&] { of.set_grad(g); });
    };
    EXPECT_TRUE(says(set(x, ones(world.device(), {3}, DType::F64)), "set_grad: gradient f64[3]"));
    EXPECT_TRUE(says(set(x, ones(world.device(), {1}, DType::F64)), "f64[1]"));
    EXPECT_TRUE(says(set(x, ones(world.device(), {2}, DType::F32)), "f32[2]"));
    const DTensor d = distribute_tensor(x.detach(), mesh, Shard(0));
    EXPECT_TRUE(says(set(d, ones(world.device(), {2}, DType::F64)), "S(0) on tp=2"));
    EXPECT_TRUE(says(refusal_of([&] { run_grad({sum(x)}, {}); }), "the list of inputs is empty"));
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing::tensor_gradient_tests
