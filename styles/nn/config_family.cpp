#include "styles/nn/config_family.h"

#include <algorithm>
#include <string_view>

#include <coshard/runtime/error.h>

namespace coshard::nn {
namespace {

using Window = ConfigFamily::Window;
constexpr ConfigFamily kFamilies[] = {
    {"llama", "LlamaForCausalLM", 32000, 11008, 2048, 0, 0, true, true, false, false, Window::None},
    {"mistral", "MistralForCausalLM", 32000, 14336, 131072, 8, 0, false, false, false, false,
     Window::All},
    {"qwen2", "Qwen2ForCausalLM", 151936, 22016, 32768, 32, 0, false, false, true, false,
     Window::ByLayer},
    {"qwen3", "Qwen3ForCausalLM", 151936, 22016, 32768, 32, 128, true, false, false, true,
     Window::ByLayer},
};

// Of how a file came to be, of generation, of other heads than that of a language model.
constexpr std::string_view kInert[] = {"_attn_implementation",
                                       "_attn_implementation_autoset",
                                       "_commit_hash",
                                       "_model_name_or_path",
                                       "_name_or_path",
                                       "attn_implementation",
                                       "bad_words_ids",
                                       "begin_suppress_tokens",
                                       "bos_token_id",
                                       "cls_token_id",
                                       "decoder_start_token_id",
                                       "diversity_penalty",
                                       "do_sample",
                                       "early_stopping",
                                       "encoder_no_repeat_ngram_size",
                                       "eos_token_id",
                                       "exponential_decay_length_penalty",
                                       "finetuning_task",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "gradient_checkpointing",
                                       "id2label",
                                       "is_llama_config",
                                       "keys_to_ignore_at_inference",
                                       "label2id",
                                       "length_penalty",
                                       "loss_type",
                                       "mask_token_id",
                                       "max_length",
                                       "max_new_tokens",
                                       "max_sequence_length",
                                       "min_length",
                                       "name_or_path",
                                       "no_repeat_ngram_size",
                                       "num_beam_groups",
                                       "num_beams",
                                       "num_labels",
                                       "num_return_sequences",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "output_scores",
                                       "prefix",
                                       "pretraining_tp",
                                       "problem_type",
                                       "remove_invalid_values",
                                       "repetition_penalty",
                                       "return_dict",
                                       "return_dict_in_generate",
                                       "sep_token_id",
                                       "suppress_tokens",
                                       "task_specific_params",
                                       "temperature",
                                       "tokenizer_class",
                                       "top_k",
                                       "top_p",
                                       "torchscript",
                                       "transformers.js_config",
                                       "transformers_version",
                                       "typical_p",
                                       "unk_token_id",
                                       "unsloth_fixed",
                                       "unsloth_version",
                                       "use_bfloat16",
                                       "use_return_dict",
                                       "use_cache"};

// Inert with this value, refused with any other but null.
struct InertValue {
  std::string_view key, value;
};
constexpr InertValue kInertValues[] = {
    {"add_cross_attention", "false"},
    {"attention_bias", "false"},
    {"chunk_size_feed_forward", "0"},
    {"cross_attention_hidden_size", "null"},
    {"is_decoder", "false"},
    {"is_encoder_decoder", "false"},
    {"mlp_bias", "false"},
    {"partial_rotary_factor", "1.0"},
    {"pruned_heads", "{}"},
    {"rope_interleaved", "false"},
    {"tie_encoder_decoder", "false"},
    {"use_mrope", "false"},
    {"use_qk_norm", "false"},
    {"use_sliding_window", "false"},
};

constexpr std::string_view kRefused[] = {"attention_multiplier",
                                         "attn_logit_softcapping",
                                         "auto_map",
                                         "clip_qkv",
                                         "compression_config",
                                         "embedding_multiplier",
                                         "final_logit_softcapping",
                                         "layer_types",
                                         "logits_scaling",
                                         "max_window_layers",
                                         "no_rope_layers",
                                         "num_experts",
                                         "num_experts_per_tok",
                                         "num_local_experts",
                                         "original_max_position_embeddings",
                                         "per_layer_config",
                                         "quantization_config",
                                         "query_pre_attn_scalar",
                                         "residual_multiplier",
                                         "sliding_window",
                                         "tie_last_hidden_states"};

template <std::size_t N>
bool lists(const std::string_view (&names)[N], std::string_view key) {
  return std::ranges::find(names, key) != std::end(names);
}

}  // namespace

const ConfigFamily* find_family(const std::string& model_type) {
  for (const ConfigFamily& family : kFamilies)
    if (model_type == family.model_type) return &family;
  return nullptr;
}

std::string family_names() {
  std::string names;
  for (const ConfigFamily& family : kFamilies)
    names += str_cat(names.empty() ? "" : ", ", family.model_type);
  return names;
}

KeyEffect effect_of(const ConfigFamily& family, const std::string& key, const ConfigJson& value) {
  if (lists(kInert, key)) return KeyEffect::None;
  for (const InertValue& inert : kInertValues) {
    if (key != inert.key) continue;
    // The biases of q, k and v in Qwen2 are not a matter of this key.
    const bool biased = key == "attention_bias" && family.qkv_bias;
    const bool same = value == ConfigJson::parse(inert.value) && !biased;
    return same || value.is_null() ? KeyEffect::None : KeyEffect::Refused;
  }
  if (!lists(kRefused, key)) return KeyEffect::Unknown;
  return value.is_null() ? KeyEffect::None : KeyEffect::Refused;
}

}  // namespace coshard::nn
