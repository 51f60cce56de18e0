#include <coshard/styles/nn/causal_lm_config.h>

#include <algorithm>

#include <coshard/runtime/error.h>

namespace coshard::nn {

CausalLMConfig checked(CausalLMConfig c) {
  if (c.num_key_value_heads == 0) c.num_key_value_heads = c.num_attention_heads;
  CS_REQUIRE(c.num_attention_heads > 0 && c.num_key_value_heads > 0 &&
                 c.num_attention_heads % c.num_key_value_heads == 0,
             "CausalLM: num_attention_heads ", c.num_attention_heads,
             " is not a multiple of num_key_value_heads ", c.num_key_value_heads);
  if (c.head_dim == 0) {
    CS_REQUIRE(c.hidden_size % c.num_attention_heads == 0, "CausalLM: hidden_size ", c.hidden_size,
               " is not divisible by num_attention_heads ", c.num_attention_heads);
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  constexpr std::int64_t kLongestHead = 65536;
  CS_REQUIRE(c.head_dim > 0 && c.head_dim % 2 == 0 && c.head_dim <= kLongestHead,
             "CausalLM: head_dim ", c.head_dim,
             " must be even for rotary positions, and from 2 to ", kLongestHead);
  const auto types = static_cast<std::int64_t>(c.layer_types.size());
  CS_REQUIRE(types == 0 || types == c.num_hidden_layers, "CausalLM: layer_types has ", types,
             " entries for num_hidden_layers ", c.num_hidden_layers);
  const bool slide = std::ranges::count(c.layer_types, LayerType::Sliding) > 0;
  CS_REQUIRE(c.sliding_window > 0 || (c.sliding_window == 0 && !slide), "CausalLM: sliding_window ",
             c.sliding_window, slide ? " with layer_types that slide" : " is negative");
  const bool full = std::ranges::count(c.layer_types, LayerType::Full) > 0;
  if (full && !slide) c.sliding_window = 0;
  if (!full || !slide) c.layer_types.clear();
  const bool stretched = c.rope.type == RopeType::Llama3 || c.rope.type == RopeType::Yarn;
  if (stretched && c.rope.original_max_position_embeddings == 0)
    c.rope.original_max_position_embeddings = c.max_position_embeddings;
  return c;
}

bool slides(const CausalLMConfig& config, std::int64_t layer) {
  if (config.sliding_window == 0 || config.layer_types.empty()) return config.sliding_window > 0;
  return config.layer_types.at(static_cast<std::size_t>(layer)) == LayerType::Sliding;
}

}  // namespace coshard::nn
