#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// A module of the program's own: gate(x) * up(x), two weights sharded alike.
class GatedUp : public Module {
 public:
  GatedUp(std::int64_t in, std::int64_t out, World& world, DType dtype) : in_(in) {
    for (auto [name, slot] : {std::pair("gate", &gate), std::pair("up", &up)}) {
      *slot = randn(world.device(), Shape{out, in}, dtype).requires_grad_();
      register_parameter(name, *slot);
    }
  }
  std::optional<ShardAxes> shard_axes(ShardBy way) const override {
    if (way == ShardBy::Rows) return std::nullopt;
    ShardAxes axes;
    axes.parameters.push_back({"gate", Shard(0)});
    axes.parameters.push_back({"up", Shard(0)});
    axes.width = in_;
    return axes;
  }
  Tensor gate, up;

 protected:
  Task<Tensor> run(Tensor x) override { co_return linear(x, gate) * linear(x, up); }

 private:
  std::int64_t in_;
};

TEST(ShardAxes, OfAModuleOfItsOwnAreWhatColwiseParallelFollows) {
  for (const int ranks : {1, 2, 3}) {
    on_ranks(ranks, [](World& world) -> Task<void> {
      auto [plain, sharded] = twins<GatedUp>(6, 7, world, DType::F64);
      co_await parallelize_module(*sharded, line(world),
                                  ColwiseParallel{.output_layouts = Replicate()});
      EXPECT_EQ(sharded->gate.layout(), Layout(Shard(0)));
      EXPECT_EQ(sharded->up.layout(), Layout(Shard(0)));
      const Tensor x = random(world, Shape{4, 6});
      const Counted got = co_await run_counted(world, *sharded, x.detach());
      const Counted want = co_await run_counted(world, *plain, x.detach());
      expect_close(got.output, want.output);
      expect_close(got.input_grad, want.input_grad);
      expect_close(sharded->gate.grad(), plain->gate.grad());
      expect_close(sharded->up.grad(), plain->up.grad());
    });
  }
}

TEST(ShardAxes, AWayThatTheModuleDoesNotHaveIsRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    GatedUp gated(6, 4, world, DType::F64);
    const std::string text = co_await error_of(parallelize_module(gated, mesh, RowwiseParallel{}));
    EXPECT_NE(text.find("GatedUp, which cannot be sharded row-wise"), std::string::npos) << text;
    EXPECT_NE(text.find("use SequenceParallel for norms"), std::string::npos) << text;
    EXPECT_FALSE(gated.gate.is_distributed());
  });
}

TEST(ShardAxes, OfALinearWithoutABiasNameTheWeightAlone) {
  on_ranks(1, [](World& world) -> Task<void> {
    const nn::Linear linear(6, 4, world, {.bias = false});
    const auto rows = linear.shard_axes(ShardBy::Rows);
    EXPECT_EQ(rows->parameters.size(), 1U);
    EXPECT_EQ(rows->parameters[0].placement, Placement(Shard(1)));
    EXPECT_EQ(rows->input, Placement(Shard(-1)));
    EXPECT_EQ(rows->width, 6);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
