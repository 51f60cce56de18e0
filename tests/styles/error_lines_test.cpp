// What errors say: rank and module path first, and what to do about it.
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

std::string text_of_run(int ranks, const Program& program) {
  try {
    on_ranks(ranks, program);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(ErrorLines, BeginWithRankAndModulePath) {
  const std::string text = text_of_run(2, [](World& world) -> Task<void> {
    Mlp mlp(world);
    Tensor x = random(world, {4, world.rank() == 1 ? 3 : mlp.net1.weight.size(1)});
    co_await mlp.forward(x);
  });
  EXPECT_EQ(text.find("rank 1, net1: linear: "), 0U) << text;
}

TEST(ErrorLines, OfAProgramWithoutModulesBeginWithTheRank) {
  const std::string text = text_of_run(2, [](World& world) -> Task<void> {
    if (world.rank() == 1) fail(ErrorKind::DeviceFailed, "disk full");
    co_return;
  });
  EXPECT_EQ(text, "rank 1: disk full");
}

TEST(ErrorLines, ArePrefixedWhereTheErrorLeavesTheForward) {
  on_ranks(1, [](World& world) -> Task<void> {
    Mlp mlp(world);
    Tensor x = random(world, {4, 3});
    std::string text;
    try {
      co_await mlp.forward(x);
    } catch (const Error& error) {
      text = error.what();
      EXPECT_EQ(std::string(error.message()).find("linear: "), 0U);
    }
    EXPECT_EQ(text.find("rank 0, net1: linear: "), 0U) << text;
  });
}

TEST(ErrorLines, SayTheRankOnceWhereRunPrintsThem) {
  WorldOptions options = test_options(2);
  std::string line;
  options.on_failure = [&](const Failure& failure) { line = failure.line(); };
  EXPECT_THROW(run_ranks(options,
                         [](World& world) -> Task<void> {
                           CS_REQUIRE(world.rank() == 0, "disk full");
                           co_return;
                         }),
               Error);
  EXPECT_EQ(line.find("rank 1: disk full"), 0U) << line;
}

struct Mine {  // has no <<
  void apply(Module&, const DeviceMesh&, const ParallelizeOptions&) const {}
};

TEST(Style, NeedsNoOutputOperator) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Linear linear(4, 4, world);
    co_await parallelize_module(linear, line(world), Mine());
    std::ostringstream text;
    text << Style(Mine{});
    EXPECT_EQ(text.str(), "Mine");
  });
}

TEST(Hints, HeadsThatAreNotWholeSaySo) {
  const std::string text = text_of_run(2, [](World& world) -> Task<void> {
    nn::Attention attention({.dim = 12, .heads = 3}, world);
    for (nn::Linear* each : {&attention.wq, &attention.wk, &attention.wv})
      each->out_groups = {};  // columns are cut anywhere
    ParallelPlan plan;
    plan["w[qkv]"] = ColwiseParallel{};
    plan["wo"] = RowwiseParallel{};
    co_await parallelize_module(attention, line(world), plan);
    const Tensor x = randn({1, 2, 12});
    co_await attention.forward(x);
  });
  EXPECT_NE(text.find("3 heads"), std::string::npos) << text;
}

}  // namespace
}  // namespace coshard::testing
