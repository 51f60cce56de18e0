#include "styles/nn/config_family.h"

#include <gtest/gtest.h>

namespace coshard::nn {
namespace {

KeyEffect effect(const char* family, const char* key, const char* value) {
  return effect_of(key, ConfigJson::parse(value), find_family(family)->qkv_bias);
}

TEST(ConfigFamily, AreFive) {
  EXPECT_EQ(family_names(), "llama, mistral, qwen2, qwen3, gemma");
  EXPECT_EQ(find_family("gemma2"), nullptr);
  EXPECT_STREQ(find_family("qwen3")->architecture, "Qwen3ForCausalLM");
}

TEST(ConfigFamily, KnowsWhatAKeyChanges) {
  EXPECT_EQ(effect("llama", "use_cache", "true"), KeyEffect::None);
  EXPECT_EQ(effect("llama", "eos_token_id", "[1, 2]"), KeyEffect::None);
  EXPECT_EQ(effect("llama", "rope_interleaved", "false"), KeyEffect::None);
  EXPECT_EQ(effect("llama", "rope_interleaved", "true"), KeyEffect::Refused);
  EXPECT_EQ(effect("llama", "partial_rotary_factor", "1"), KeyEffect::None);
  EXPECT_EQ(effect("llama", "partial_rotary_factor", "0.5"), KeyEffect::Refused);
  EXPECT_EQ(effect("llama", "sliding_window", "null"), KeyEffect::None);
  EXPECT_EQ(effect("llama", "sliding_window", "8"), KeyEffect::Refused);
  EXPECT_EQ(effect("llama", "quantization_config", "{}"), KeyEffect::Refused);
  EXPECT_EQ(effect("mistral", "attention_bias", "false"), KeyEffect::None);
  EXPECT_EQ(effect("mistral", "attention_bias", "true"), KeyEffect::Refused);
  EXPECT_EQ(effect("qwen2", "attention_bias", "false"), KeyEffect::Refused);
  EXPECT_EQ(effect("gemma", "use_bidirectional_attention", "true"), KeyEffect::Refused);
  EXPECT_EQ(effect("llama", "hidden_sizes", "null"), KeyEffect::Unknown);
}

}  // namespace
}  // namespace coshard::nn
