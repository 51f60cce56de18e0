// Rotary positions as transformers turns them (nn/models/make.py).
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

constexpr std::int64_t kPositions[] = {0, 100, 8192, 60000};

struct RopeCase {
  const char* name;
  nn::RopeConfig rope;
};
const RopeCase kRopeCases[] = {
    {"default", {}},
    {"linear", {.type = nn::RopeType::Linear, .factor = 4}},
    {"dynamic", {.type = nn::RopeType::Dynamic, .factor = 2}},
    {"llama3",
     {.type = nn::RopeType::Llama3,
      .theta = 500000,
      .factor = 8,
      .original_max_position_embeddings = 8192}},
    {"yarn",
     {.type = nn::RopeType::Yarn,
      .theta = 1000000,
      .factor = 4,
      .original_max_position_embeddings = 4096}},
};

TEST(CausalLM, S47S48PositionsTurnAsInTransformers) {
  on_ranks(1, [](World& world) -> Task<void> {
    State stored;
    const Shape shape{1, 1, 1, 64};
    stored.add("x", zeros(world.device(), shape));
    for (const RopeCase& c : kRopeCases)
      for (const std::int64_t position : kPositions)
        stored.add(str_cat(c.name, ".", position), zeros(world.device(), shape));
    Task<LoadReport> loading = load(stored, COSHARD_TEST_MODELS "/rope.safetensors");
    co_await std::move(loading);
    for (const RopeCase& c : kRopeCases) {
      for (const std::int64_t position : kPositions) {
        const RotaryTable table = nn::rotary_table(c.rope, 64, 8192, position + 1);
        const Tensor got = rotary_embedding(stored["x"], table, position);
        SCOPED_TRACE(str_cat(c.name, " at ", position));
        expect_close(got, stored[str_cat(c.name, ".", position)], 1e-6);
      }
    }
    co_return;
  });
}

TEST(CausalLM, DynamicStretchesLongerSequencesAlone) {
  const nn::RopeConfig dynamic{.type = nn::RopeType::Dynamic, .factor = 2};
  const RotaryTable plain = nn::rotary_table({}, 16, 64, 1);
  EXPECT_EQ(nn::rotary_table(dynamic, 16, 64, 64), plain);
  EXPECT_EQ(nn::rotary_table(dynamic, 16, 64, 65).frequencies()[0], 1);
  EXPECT_LT(nn::rotary_table(dynamic, 16, 64, 65).frequencies()[7], plain.frequencies()[7]);
}

TEST(CausalLM, YarnScalesCosinesAndSines) {
  nn::RopeConfig yarn{.type = nn::RopeType::Yarn, .factor = 4};
  const auto scaling = [&] { return nn::rotary_table(yarn, 16, 64, 1).scaling(); };
  EXPECT_FLOAT_EQ(scaling(), 0.1 * std::log(4) + 1);
  yarn.mscale = 0.5, yarn.mscale_all_dim = 0.25;
  EXPECT_FLOAT_EQ(scaling(), (0.05 * std::log(4) + 1) / (0.025 * std::log(4) + 1));
  yarn.attention_factor = 0.75;
  EXPECT_FLOAT_EQ(scaling(), 0.75);
}

TEST(CausalLM, RefusesPositionsWithoutFrequencies) {
  EXPECT_THROW(nn::rotary_table({}, 7, 64, 1), Error);
  EXPECT_THROW(nn::rotary_table({.theta = -1}, 8, 64, 1), Error);
  EXPECT_THROW(nn::rotary_table({.type = nn::RopeType::Dynamic}, 2, 64, 1), Error);
}

}  // namespace
}  // namespace coshard::testing
