#include <coshard/dtensor/backward/finite_guard.h>

#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

std::string backward_says(const Tensor& loss) {
  try {
    run_backward(loss);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    return error.what();
  }
  return "";
}

TEST(FiniteGuard, NamesTheOperatorWhoseGradientIsNotFiniteInTheSameStep) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    const Tensor zero = sub(x, x.detach());
    const Tensor loss = sum(sqrt(zero));  // 0 forward, infinite backward
    const FiniteGuard guard(world);
    EXPECT_EQ(
        backward_says(loss),
        "rank 0: a gradient returned by sqrt, f64[3], has inf at element 0 of the local tensor");
    EXPECT_FALSE(x.grad().defined());
    co_return;
  });
}

TEST(FiniteGuard, NamesTheLossAndItsOperator) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = zeros(world.device(), {3}, DType::F64);
    x.set_requires_grad(true);
    const Tensor loss = sum(log(x));
    const FiniteGuard guard(world);
    EXPECT_EQ(backward_says(loss),
              "rank 0: the loss, made by sum, f64[], has -inf at element 0 of the local tensor");
    co_return;
  });
}

TEST(FiniteGuard, AnErrorThatLeavesTheProgramNamesTheRankOnce) {
  std::string text;
  try {
    on_ranks(1, [](World& world) -> Task<void> {
      Tensor x = zeros(world.device(), {3}, DType::F64);
      x.set_requires_grad(true);
      const Tensor loss = sum(log(x));
      const FiniteGuard guard(world);
      co_await backward(loss);
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_EQ(text,
            "rank 0: the loss, made by sum, f64[], has -inf at element 0 of the local tensor");
}

TEST(FiniteGuard, SaysNothingOfFiniteGradientsNorWhenItIsGone) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    {
      const FiniteGuard guard(world);
      EXPECT_EQ(backward_says(sum(sqrt(x))), "");
    }
    EXPECT_EQ(backward_says(sum(sqrt(sub(x, x.detach())))), "");
    co_return;
  });
}

// The rank that has it says so; its peer fails with it.
TEST(FiniteGuard, NamesTheRankThatHasIt) {
  std::string text;
  try {
    on_ranks(2, [](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
      DTensor x = from_local(counting(world, {2}, DType::F64, world.rank()), mesh, Shard(0));
      x.set_requires_grad(true);
      const DTensor loss = sum(sqrt(mul(x, x))).redistribute(Replicate()).tensor();
      const FiniteGuard guard(world);
      co_await backward(loss);
      EXPECT_EQ(world.rank(), 1);
      co_await loss.detach().redistribute(Replicate());
    });
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_NE(text.find("rank 0: a gradient returned by sqrt, f64[4] S(0) on tp=2"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace coshard
