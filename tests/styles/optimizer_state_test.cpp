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
    EXPECT_EQ(state["net2.weight.step"].item(), 0);
    EXPECT_EQ(state.find("net2.weight.exp_avg"), nullptr);
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
    EXPECT_CONTAINS(text, "lacks 'net1.weight.momentum', 'net1.bias.momentum'");
    EXPECT_CONTAINS(text, "has 'net1.bias.exp_avg', 'net1.bias.exp_avg_sq'");
    EXPECT_EQ(plain.steps_of(0), 0);
    EXPECT_CONTAINS(error_of([&] { state_dict(optimizer, other); }), "register_parameter");
  });
}

TEST(OptimizerState, RefusesCountsThatAreNone) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Linear linear(2, 3, world, {.bias = false});
    AdamW optimizer(linear.parameters());
    co_await backward(sum(linear.weight));
    co_await optimizer.step();
    State state = state_dict(optimizer, linear);
    fill_(state["weight.step"], -5);
    Task<std::string> loading = refusal(load_state_dict(optimizer, linear, state));
    const std::string said = co_await std::move(loading);
    EXPECT_CONTAINS(said, "-5 steps");
    EXPECT_EQ(optimizer.steps_of(0), 0);  // as new
  });
}

// "p0" to "p7", of which an optimizer steps some.
struct Eight : Module {
  explicit Eight(World& world) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = ones(world.device(), {3});
      all[i].requires_grad_();
      register_parameter(str_cat("p", i), all[i]);
    }
  }
  std::vector<Tensor> some(std::size_t begin, std::size_t end) const {
    return {all.begin() + static_cast<std::ptrdiff_t>(begin),
            all.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  std::vector<Tensor> all = std::vector<Tensor>(8);
};

Task<void> step_once(Optimizer& optimizer) {
  Tensor loss;
  for (const Tensor& p : optimizer.parameters())
    loss = loss.defined() ? loss + sum(p * p) : sum(p * p);
  run_backward(loss);
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
}

TEST(OptimizerState, S38OfOtherParametersIsRefusedByTheFirstFiveOrStartsThemAsNew) {
  on_ranks(2, [](World& world) -> Task<void> {
    Eight saved(world), loaded(world);
    AdamW of_six(saved.some(0, 6)), of_seven(loaded.some(1, 8));
    Task<void> once = step_once(of_six);
    co_await std::move(once);
    Task<void> too = step_once(of_seven);
    co_await std::move(too);
    const State state = state_dict(of_six, saved);
    Task<std::string> refused = refusal(load_state_dict(of_seven, loaded, state));
    const std::string text = co_await std::move(refused);
    EXPECT_CONTAINS(text, "lacks 'p6', 'p7', ");
    EXPECT_CONTAINS(text, "has 'p0', ");
    EXPECT_EQ(of_seven.steps_of(0), 0);

    AdamW of_last(loaded.some(6, 8)), of_first(saved.some(0, 8));
    const State two = state_dict(of_last, loaded);
    Task<std::string> fewer = refusal(load_state_dict(of_first, saved, two));
    const std::string fewer_text = co_await std::move(fewer);
    EXPECT_CONTAINS(fewer_text, "lacks 'p0', 'p1', 'p2', 'p3', 'p4' and 1 more, ");
    EXPECT_EQ(fewer_text.find("has '"), std::string::npos) << fewer_text;
    const State eight = state_dict(of_first, saved);
    Task<std::string> more = refusal(load_state_dict(of_last, loaded, eight));
    const std::string more_text = co_await std::move(more);
    EXPECT_CONTAINS(more_text, "has 'p0', 'p1', 'p2', 'p3', 'p4' and 1 more, ");

    LoadOptions any;
    any.strict = false;
    Task<LoadReport> loading = load_state_dict(of_seven, loaded, state, any);
    const LoadReport report = co_await std::move(loading);
    EXPECT_EQ(report.missing, (std::vector<std::string>{"p6", "p7"}));
    EXPECT_EQ(report.unexpected, (std::vector<std::string>{"p0"}));
    EXPECT_EQ(of_seven.steps_of(0), 1);
    EXPECT_EQ(of_seven.steps_of(5), 0);
    EXPECT_EQ(state_dict(of_seven, loaded)["p5.exp_avg"].to_vector(),
              state["p5.exp_avg"].to_vector());
  });
}

TEST(OptimizerState, S38OfAnotherOptimizerIsRefusedOrStartsAsNew) {
  on_ranks(2, [](World& world) -> Task<void> {
    Eight saved(world), loaded(world);
    SGD plain(saved.some(0, 8), {.lr = 0.5});
    AdamW first(saved.some(0, 8)), second(loaded.some(0, 8), {.amsgrad = true});
    Task<void> once = step_once(plain);
    co_await std::move(once);
    const State rate = state_dict(plain, saved);
    EXPECT_EQ(rate.size(), 1U);
    Task<std::string> refused = refusal(load_state_dict(second, loaded, rate));
    const std::string text = co_await std::move(refused);
    EXPECT_CONTAINS(text, "lacks 'p0', 'p1', 'p2', 'p3', 'p4' and 3 more, ");

    Task<void> twice = step_once(first);
    co_await std::move(twice);
    const State adamw = state_dict(first, saved);
    Task<std::string> largest = refusal(load_state_dict(second, loaded, adamw));
    const std::string largest_text = co_await std::move(largest);
    EXPECT_CONTAINS(largest_text, "lacks 'p0.max_exp_avg_sq', ");
    Task<std::string> moments = refusal(load_state_dict(plain, saved, adamw));
    const std::string moments_text = co_await std::move(moments);
    EXPECT_CONTAINS(moments_text, "has 'p0.exp_avg', ");

    LoadOptions any;
    any.strict = false;
    Task<LoadReport> loading = load_state_dict(second, loaded, adamw, any);
    const LoadReport report = co_await std::move(loading);
    EXPECT_EQ(report.missing.size(), 8U);
    EXPECT_EQ(second.steps_of(0), 0);  // not half of its moments
    Task<LoadReport> rated = load_state_dict(second, loaded, rate, any);
    const LoadReport of_rate = co_await std::move(rated);
    EXPECT_EQ(of_rate.missing.size(), 8U);
    EXPECT_EQ(second.lr, 0.5);
  });
}

}  // namespace
}  // namespace coshard::testing
