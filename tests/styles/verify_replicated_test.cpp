// Replicas that differ are named.
#include <coshard/styles/verify_replicated.h>
#include "styles/module_change.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(VerifyReplicated, NamesTheParameterOrGradientThatDiffers) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    Mlp mlp(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = NoParallel{};
    co_await parallelize_module(mlp, mesh, plan);
    co_await verify_replicated(mlp);
    mlp.net2.bias.set_grad(
        from_local(full(world.device(), {10}, world.rank(), DType::F64), mesh, Replicate()));
    const std::string text = co_await error_of(verify_replicated(mlp));
    EXPECT_CONTAINS(text, "replicas differ: the gradient of net2.bias f64[10] R on tp=2 of rank 1");
    {
      const NoGradGuard off;
      if (world.rank() == 1) fill_(to_local(mlp.net2.weight), 3);
    }
    const std::string value = co_await error_of(verify_replicated(mlp));
    EXPECT_CONTAINS(value, "replicas differ: net2.weight f64[10,16] R");
  });
}

}  // namespace
}  // namespace coshard::testing
