#include <coshard/styles/nn/gpt2_config.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "styles/nn/config_family.h"
#include "styles/nn/config_values.h"

namespace coshard::nn {
namespace {

constexpr const char* kArchitecture = "GPT2LMHeadModel";

// Of other heads than that of a language model; of where transformers rounds in half precision; the
// older name of n_positions.
constexpr std::array<std::string_view, 8> kInertOfGPT2{"n_ctx",
                                                       "pad_token_id",
                                                       "reorder_and_upcast_attn",
                                                       "summary_activation",
                                                       "summary_first_dropout",
                                                       "summary_proj_to_labels",
                                                       "summary_type",
                                                       "summary_use_proj"};

void read_dropout(ConfigKeys& keys, const std::vector<std::string>& ignore, GPT2Config& c) {
  c.resid_pdrop = keys.number("resid_pdrop").value_or(c.resid_pdrop);
  c.embd_pdrop = keys.number("embd_pdrop").value_or(c.embd_pdrop);
  const bool ignored = std::ranges::find(ignore, "attn_pdrop") != ignore.end();
  c.attn_pdrop = keys.number("attn_pdrop").value_or(ignored ? 0 : c.attn_pdrop);
}

GPT2Config gpt2_config_of(const ConfigJson& json, const std::string& file,
                          const std::vector<std::string>& ignore) {
  ConfigKeys keys(json, file, "", ignore);
  GPT2Config c;
  if (keys.text("model_type") != "gpt2") keys.refuse("model_type", "is not gpt2");
  require_architecture(keys, kArchitecture);
  const auto size = [&](const char* key, std::int64_t otherwise) {
    return keys.integer(key, 1, kMostOfSize).value_or(otherwise);
  };
  c.vocab_size = size("vocab_size", c.vocab_size);
  c.n_positions = size("n_positions", c.n_positions);
  c.n_embd = size("n_embd", c.n_embd);
  c.n_layer = keys.integer("n_layer", 1, kMostLayers).value_or(c.n_layer);
  c.n_head = size("n_head", c.n_head);
  c.n_inner = size("n_inner", 0);
  if (const auto act = keys.text("activation_function"))
    c.activation_function = value_of(keys, "activation_function", *act, kActivations);
  read_dropout(keys, ignore, c);
  c.layer_norm_epsilon = positive(keys, "layer_norm_epsilon", c.layer_norm_epsilon);
  c.initializer_range = keys.number("initializer_range").value_or(c.initializer_range);
  c.scale_attn_weights = keys.flag("scale_attn_weights").value_or(true);
  c.scale_attn_by_inverse_layer_idx = keys.flag("scale_attn_by_inverse_layer_idx").value_or(false);
  c.tie_word_embeddings = keys.flag("tie_word_embeddings").value_or(true);
  c.dtype = read_dtype(keys);
  refuse_rest(keys, "gpt2", [&](const std::string& key) {
    if (std::ranges::find(kInertOfGPT2, key) != kInertOfGPT2.end()) return KeyEffect::None;
    return effect_of(key, json.at(key), false);
  });
  try {
    return checked(c);
  } catch (const Error& error) {
    fail(ErrorKind::BadInput, str_cat(file, ": ", error.message()));
  }
}

}  // namespace

GPT2Config checked(GPT2Config c) {
  CS_REQUIRE(c.n_head > 0 && c.n_embd % c.n_head == 0, "GPT2: n_embd ", c.n_embd,
             " is not divisible by n_head ", c.n_head);
  for (const double p : {c.resid_pdrop, c.embd_pdrop, c.attn_pdrop})
    CS_REQUIRE(p >= 0 && p <= 1, "GPT2: resid_pdrop ", c.resid_pdrop, ", embd_pdrop ", c.embd_pdrop,
               " or attn_pdrop ", c.attn_pdrop, " is outside [0, 1]");
  if (c.n_inner == 0) c.n_inner = 4 * c.n_embd;
  return c;
}

GPT2Config gpt2_config_of_text(std::string text, const std::string& file,
                               const std::vector<std::string>& ignore) {
  GPT2Config config = gpt2_config_of(parse_config(text, file), file, ignore);
  config.read_from = {std::move(text), ignore};
  return config;
}

GPT2Config read_gpt2_config(const std::string& folder, const ReadConfigOptions& options) {
  ConfigFile file = config_file(folder);
  return gpt2_config_of_text(std::move(file.text), file.path, options.ignore);
}

std::string config_text(const GPT2Config& given) {
  const GPT2Config c = checked(given);
  const auto read = [](const ConfigJson& json, const std::vector<std::string>& ignored) {
    return gpt2_config_of(json, "config.json", ignored);
  };
  if (std::string text = text_as_read(c, read); !text.empty()) return text;
  const bool by_tanh = c.activation_function == HiddenAct::GeluTanh;
  ConfigJson json{
      {"architectures", ConfigJson::array({kArchitecture})},
      {"model_type", "gpt2"},
      {"vocab_size", c.vocab_size},
      {"n_positions", c.n_positions},
      {"n_embd", c.n_embd},
      {"n_layer", c.n_layer},
      {"n_head", c.n_head},
      {"n_inner", c.n_inner},
      {"activation_function", by_tanh ? "gelu_new" : text_of(c.activation_function, kActivations)},
      {"resid_pdrop", c.resid_pdrop},
      {"embd_pdrop", c.embd_pdrop},
      {"attn_pdrop", c.attn_pdrop},
      {"layer_norm_epsilon", c.layer_norm_epsilon},
      {"initializer_range", c.initializer_range},
      {"scale_attn_weights", c.scale_attn_weights},
      {"scale_attn_by_inverse_layer_idx", c.scale_attn_by_inverse_layer_idx},
      {"tie_word_embeddings", c.tie_word_embeddings},
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr}};
  put_dtype(json, c.dtype);
  return json.dump(2) + "\n";
}

}  // namespace coshard::nn
