#include <coshard/styles/nn/causal_lm_config.h>

#include <gtest/gtest.h>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/support/contains.h"

namespace coshard::nn {
namespace {

std::string refusal_of(const CausalLMConfig& config) {
  return testing::message_of([&] { checked(config); });
}

TEST(CheckedConfig, FillsInSizesThatFollowFromOthers) {
  const CausalLMConfig config = checked({.hidden_size = 24,
                                         .num_attention_heads = 4,
                                         .max_position_embeddings = 64,
                                         .rope = {.type = RopeType::Yarn, .factor = 2}});
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.head_dim, 6);
  EXPECT_EQ(config.rope.original_max_position_embeddings, 64);
  EXPECT_EQ(checked(config), config);
}

TEST(CheckedConfig, NamesSizesThatDoNotDivide) {
  EXPECT_CONTAINS(refusal_of({.num_attention_heads = 4, .num_key_value_heads = 3}),
                  "num_attention_heads 4 is not a multiple of num_key_value_heads 3");
  EXPECT_CONTAINS(refusal_of({.hidden_size = 10, .num_attention_heads = 4}),
                  "hidden_size 10 is not divisible by num_attention_heads 4");
  EXPECT_CONTAINS(refusal_of({.head_dim = 3}), "head_dim 3 must be even");
}

TEST(CheckedConfig, LayersSlideWithinAWindowAlone) {
  CausalLMConfig config{.num_hidden_layers = 2};
  config.layer_types = {LayerType::Sliding, LayerType::Full};
  EXPECT_CONTAINS(refusal_of(config), "sliding_window 0 with layer_types that slide");
  config.sliding_window = -1;
  EXPECT_CONTAINS(refusal_of(config), "sliding_window -1");
  config.sliding_window = 2;
  EXPECT_EQ(checked(config).layer_types, config.layer_types);
  EXPECT_TRUE(slides(config, 0) && !slides(config, 1));
  config.layer_types.pop_back();
  EXPECT_CONTAINS(refusal_of(config), "layer_types has 1 entries for num_hidden_layers 2");
  config.layer_types = {LayerType::Full, LayerType::Full};
  EXPECT_EQ(checked(config).sliding_window, 0);
  EXPECT_TRUE(checked(config).layer_types.empty());
  config.layer_types = {LayerType::Sliding, LayerType::Sliding};
  EXPECT_TRUE(checked(config).layer_types.empty() && slides(checked(config), 1));
}

}  // namespace
}  // namespace coshard::nn
