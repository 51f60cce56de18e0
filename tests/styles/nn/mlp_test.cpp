// The SwiGLU block.
#include <coshard/styles/parallelize.h>

#include "styles/path_pattern.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(Mlp, InfersLikeTheLocalModuleWithoutATape) {  // A104
  on_ranks(4, [](World& world) -> Task<void> {
    auto [plain, mlp] = twins<Mlp>(world);
    ParallelPlan plan;
    plan["net1"] = ColwiseParallel{};
    plan["net2"] = RowwiseParallel{};
    co_await parallelize_module(*mlp, line(world), plan);
    const Tensor x = random(world, Shape{12, 10});
    const NoGradGuard no_grad;
    const Tensor got = co_await mlp->forward(x);
    const Tensor want = co_await plain->forward(x);
    EXPECT_FALSE(got.requires_grad());
    expect_close(got, want);
  });
}

}  // namespace
}  // namespace coshard::testing
