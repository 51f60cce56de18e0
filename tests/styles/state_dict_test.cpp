// A model's state to files and back, cut in different ways on different meshes.
#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/cut_models.h"

namespace coshard::testing {
namespace {

TEST(StateDict, S23OfAModelIsLoadedInEveryCutAsItWasSavedInAnother) {
  for (const Cutting& from : kCuttings) {
    const ScratchFolder scratch;
    std::map<std::string, std::vector<double>> want;
    on_ranks(from.ranks, [&](World& world) -> Task<void> {
      Task<std::shared_ptr<nn::CausalLM>> making_model = made(world, from.cut, 1);
      const auto model = co_await std::move(making_model);
      Task<void> saved = save(*model, scratch.path("m"));
      co_await std::move(saved);
      auto values = values_of(*model);
      if (world.rank() == 0) want = std::move(values);
    });
    EXPECT_FALSE(want.contains("lm_head.weight"));
    for (const Cutting& to : kCuttings)
      on_ranks(to.ranks, [&](World& world) -> Task<void> {
        Task<std::shared_ptr<nn::CausalLM>> making_model = made(world, to.cut, 2);
        const auto model = co_await std::move(making_model);
        EXPECT_NE(values_of(*model), want);
        Task<LoadReport> loaded = load(*model, scratch.path("m"));
        const LoadReport report = co_await std::move(loaded);
        EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
        EXPECT_EQ(values_of(*model), want);
        EXPECT_EQ(model->lm_head.weight.id(), model->model.embed_tokens.weight.id());
      });
  }
}

TEST(StateDict, IsCopiedBetweenModelsOfOtherCuts) {
  on_ranks(4, [](World& world) -> Task<void> {
    Task<std::shared_ptr<nn::CausalLM>> making_a = made(world, Cut::Both, 1);
    const auto a = co_await std::move(making_a);
    Task<std::shared_ptr<nn::CausalLM>> making_b = made(world, Cut::Fsdp, 2);
    const auto b = co_await std::move(making_b);
    Task<LoadReport> copied = load_state_dict(*b, state_dict(*a));
    co_await std::move(copied);
    EXPECT_EQ(values_of(*a), values_of(*b));
    State other;
    other.add("model.norm.weight", zeros(world.device(), {3}));
    other.add("more", zeros(world.device(), {3}));
    std::string text;
    try {
      Task<LoadReport> refused = load_state_dict(*b, other);
      co_await std::move(refused);
    } catch (const Error& error) {
      text = error.message();
    }
    EXPECT_CONTAINS(text, "'model.norm.weight' has shape [3] there");
    EXPECT_CONTAINS(text, "lacks 'model.embed_tokens.weight'");
    EXPECT_CONTAINS(text, " more");
    EXPECT_EQ(values_of(*a), values_of(*b));
  });
}

struct Counts : Module {
  explicit Counts(World& world)
      : weight(zeros(world.device(), {2})),
        seen(Tensor::from_values(world.device(), {3}, DType::I64, {1, 2, 3})),
        table(ones(world.device(), {4})) {
    register_parameter("weight", weight);
    register_buffer("seen", seen);
    register_buffer("table", table, false);
  }
  Tensor weight, seen, table;
};

TEST(StateDict, HasBuffersThatPersist) {
  on_ranks(1, [](World& world) -> Task<void> {
    Counts a(world), b(world);
    EXPECT_EQ(a.named_buffers().size(), 2U);
    EXPECT_EQ(a.named_parameters().size(), 1U);
    EXPECT_EQ(state_dict(a).find("table"), nullptr);
    fill_(a.seen, 7);
    Task<LoadReport> copied = load_state_dict(b, state_dict(a));
    co_await std::move(copied);
    EXPECT_EQ(b.seen.to_vector(), std::vector<double>(3, 7));
    EXPECT_THROW(a.register_buffer("weight", a.table), Error);
    EXPECT_THROW(a.register_parameter("seen", a.table), Error);
  });
}

}  // namespace
}  // namespace coshard::testing
