// The state of an optimizer, by the names of its module's parameters.
#include "styles/optimizer_state.h"

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(OptimizerState, HasWhatHasBeenSteppedAndNamesWhatIsNot) {
  on_ranks(2, [](World& world) -> Task<void> {
    Mlp mlp(world), other(world);
    AdamW optimizer(mlp.parameters()), fresh(other.parameters());
    Task<Tensor> forward = mlp.net1.forward(random(world, {4, 10}));
    const Tensor y = co_await std::move(forward);
    run_backward(sum(y * y));
    Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    const State state = state_dict(optimizer, mlp);
    EXPECT_NE(state.find("net1.weight.exp_avg"), nullptr);
    EXPECT_EQ(state["net1.weight.step"].item(), 1);
    EXPECT_EQ(state.find("net2.weight.step"), nullptr);
    Task<LoadReport> copied = load_state_dict(fresh, other, state);
    co_await std::move(copied);
    EXPECT_EQ(fresh.steps_of(0), 1);
    EXPECT_EQ(fresh.steps_of(2), 0);
    EXPECT_EQ(state_dict(fresh, other)["net1.bias.exp_avg_sq"].to_vector(),
              state["net1.bias.exp_avg_sq"].to_vector());

    SGD plain(other.parameters(), {.momentum = 0.9});
    std::string text;
    try {
      Task<LoadReport> refused = load_state_dict(plain, other, state);
      co_await std::move(refused);
    } catch (const Error& error) {
      text = error.message();
    }
    EXPECT_CONTAINS(text, "lacks 'net1.weight.momentum'");
    EXPECT_CONTAINS(text, "has 'net1.weight.exp_avg'");
    EXPECT_EQ(plain.steps_of(0), 0);
    EXPECT_CONTAINS(error_of([&] { state_dict(optimizer, other); }), "register_parameter");
  });
}

}  // namespace
}  // namespace coshard::testing
