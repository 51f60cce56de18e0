// generation_config.json, in the keys of transformers.
#include <filesystem>

#include <coshard/styles/nn/generator.h>
#include "dtensor/checkpoint/file.h"
#include "styles/nn/config_text.h"

namespace coshard::nn {
namespace {

constexpr std::uint64_t kMostOfGenerationConfig = 10'000'000;
constexpr std::int64_t kMostTokens = INT32_MAX;

// Of how a file came to be, or of what a Generator decides itself.
constexpr const char* kOfOtherUses[] = {"_from_model_config",
                                        "bos_token_id",
                                        "cache_config",
                                        "cache_implementation",
                                        "decoder_start_token_id",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "output_logits",
                                        "output_scores",
                                        "pad_token_id",
                                        "return_dict_in_generate",
                                        "trust_remote_code",
                                        "transformers_version",
                                        "use_cache",
                                        "disable_compile",
                                        "num_assistant_tokens",
                                        "num_assistant_tokens_schedule",
                                        "assistant_confidence_threshold",
                                        "assistant_early_exit",
                                        "assistant_lookbehind",
                                        "target_lookbehind",
                                        "max_matching_ngram_size",
                                        "renormalize_logits"};
// Keys that have no effect with these values.
struct Neutral {
  const char* key;
  double value;
};
constexpr Neutral kWithoutEffect[] = {{"num_beams", 1},
                                      {"num_beam_groups", 1},
                                      {"num_return_sequences", 1},
                                      {"typical_p", 1},
                                      {"epsilon_cutoff", 0},
                                      {"eta_cutoff", 0},
                                      {"no_repeat_ngram_size", 0},
                                      {"min_length", 0},
                                      {"min_new_tokens", 0},
                                      {"min_p", 0},
                                      {"penalty_alpha", 0},
                                      {"guidance_scale", 1},
                                      {"diversity_penalty", 0},
                                      {"length_penalty", 1},
                                      {"encoder_repetition_penalty", 1},
                                      {"encoder_no_repeat_ngram_size", 0}};

std::vector<std::int64_t> read_eos(ConfigKeys& keys) {
  const ConfigJson* value = keys.find("eos_token_id");
  if (value == nullptr) return {};
  std::vector<std::int64_t> ids;
  for (const ConfigJson& id : value->is_array() ? *value : ConfigJson::array({*value})) {
    if (!id.is_number_integer() || id < 0 || id > kMostTokens)
      keys.refuse("eos_token_id", "is no token, nor a list of tokens");
    ids.push_back(id);
  }
  return ids;
}

void refuse_other_effects(ConfigKeys& keys, const ConfigJson& json) {
  for (const char* key : kOfOtherUses) keys.find(key);
  for (const auto& [key, value] : kWithoutEffect)
    if (keys.number(key).value_or(value) != value)
      keys.refuse(key, str_cat("is not supported; only ", value, ", which has no effect, is"));
  for (const std::string& key : keys.rest()) {
    const ConfigJson& value = json.at(key);
    if (value != false && !(value.is_structured() && value.empty()))
      keys.refuse(key, "is not supported; remove it from the file if it has no effect");
  }
}

// How long a text may be. transformers takes its default of max_length, 20, for so many new tokens.
void read_lengths(ConfigKeys& keys, GenerationOptions& options) {
  constexpr std::int64_t kDefault = 20;
  const auto length = keys.integer("max_length", 1, kMostTokens);
  const auto tokens = keys.integer("max_new_tokens", 1, kMostTokens);
  options.max_new_tokens = tokens.value_or(kDefault);
  if (tokens || length.value_or(kDefault) == kDefault) return;
  options.max_length = *length;
  options.max_new_tokens = kMostTokens;
}

GenerationOptions generation_options(const ConfigJson& json, const std::string& file) {
  ConfigKeys keys(json, file, "", {});
  GenerationOptions options;
  options.eos_token_ids = read_eos(keys);
  const auto number = [&](const char* key, double otherwise) {
    return keys.number(key).value_or(otherwise);
  };
  const bool draws = keys.flag("do_sample").value_or(false);
  const double temperature = number("temperature", 1), top_p = number("top_p", 1);
  const std::int64_t top_k = keys.integer("top_k", 0, kMostTokens).value_or(50);
  if (draws) {
    if (!(temperature > 0)) keys.refuse("temperature", "is not positive");
    if (!(top_p > 0 && top_p <= 1)) keys.refuse("top_p", "is not in (0, 1]");
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
  }
  options.repetition_penalty = number("repetition_penalty", 1);
  if (!(options.repetition_penalty > 0)) keys.refuse("repetition_penalty", "is not positive");
  read_lengths(keys, options);
  refuse_other_effects(keys, json);
  return options;
}

// The object of a file, without keys whose value is null: to transformers they are absent.
ConfigJson values_of(const std::string& file) {
  ConfigJson json = parse_config(read_text(file, kMostOfGenerationConfig), file);
  CS_REQUIRE(json.is_object(), file, ": is not a JSON object");
  ConfigJson values = ConfigJson::object();
  for (const auto& [key, value] : json.items())
    if (!value.is_null()) values[key] = value;
  return values;
}

// Of the keys of a config.json, those that transformers takes where generation_config.json is not.
ConfigJson generation_keys(const ConfigJson& config) {
  ConfigJson keys = ConfigJson::object();
  const auto take = [&](const char* key) {
    if (config.contains(key)) keys[key] = config.at(key);
  };
  for (const char* key : {"eos_token_id", "do_sample", "temperature", "top_k", "top_p",
                          "repetition_penalty", "max_new_tokens", "max_length"})
    take(key);
  for (const Neutral& each : kWithoutEffect) take(each.key);
  return keys;
}

}  // namespace

GenerationOptions read_generation_config(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::path(folder) / "generation_config.json";
  std::error_code error;
  if (std::filesystem::exists(path, error))
    return generation_options(values_of(path.string()), path.string());
  const std::string config = (std::filesystem::path(folder) / "config.json").string();
  return generation_options(generation_keys(values_of(config)), config);
}

}  // namespace coshard::nn
