#include <coshard/styles/nn/config_json.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "styles/nn/config_family.h"
#include "styles/nn/config_values.h"

namespace coshard::nn {
namespace {

constexpr Spelling<RopeType> kRopeTypes[] = {{"default", RopeType::Default},
                                             {"linear", RopeType::Linear},
                                             {"dynamic", RopeType::Dynamic},
                                             {"llama3", RopeType::Llama3},
                                             {"yarn", RopeType::Yarn}};
constexpr Spelling<LayerType> kLayerTypes[] = {{"full_attention", LayerType::Full},
                                               {"sliding_attention", LayerType::Sliding}};

// ---- rope

// The object rope_parameters or rope_scaling.
RopeConfig rope_of(const ConfigJson& object, const char* name, ConfigKeys& top,
                   std::int64_t most_positions) {
  if (!object.is_object()) top.refuse(name, "is not an object");
  ConfigKeys keys(object, top.file(), str_cat(name, "."), top.ignored());
  const auto type = keys.text("rope_type"), old = keys.text("type");
  if (type && old && *type != *old) keys.refuse("type", str_cat("differs from rope_type ", *type));
  RopeConfig rope;
  const char* const given = type || !old ? "rope_type" : "type";
  if (type || old) rope.type = value_of(keys, given, type ? *type : *old, kRopeTypes);
  rope.theta = positive(keys, "rope_theta", positive(top, "rope_theta", RopeConfig{}.theta));
  if (const auto theta = top.number("rope_theta"); theta && *theta != rope.theta)
    keys.refuse("rope_theta", str_cat("differs from rope_theta ", *theta, " beside it"));
  keys.find("finetuned");  // of how the model came to be
  if (keys.number("partial_rotary_factor").value_or(1) != 1)
    keys.refuse("partial_rotary_factor", "is not supported");
  if (rope.type != RopeType::Default) rope.factor = positive(keys, "factor", std::nullopt);
  if (rope.type == RopeType::Llama3 || rope.type == RopeType::Yarn)
    rope.original_max_position_embeddings =
        keys.integer("original_max_position_embeddings", 1, kMostOfSize).value_or(most_positions);
  if (rope.type == RopeType::Llama3) {
    rope.low_freq_factor = positive(keys, "low_freq_factor", std::nullopt);
    rope.high_freq_factor = positive(keys, "high_freq_factor", std::nullopt);
    if (rope.high_freq_factor <= rope.low_freq_factor)
      keys.refuse("high_freq_factor",
                  str_cat("is not above low_freq_factor ", rope.low_freq_factor));
  }
  if (rope.type == RopeType::Yarn) {
    rope.attention_factor = keys.number("attention_factor");
    rope.mscale = keys.number("mscale");
    rope.mscale_all_dim = keys.number("mscale_all_dim");
    rope.beta_fast = positive(keys, "beta_fast", rope.beta_fast);
    rope.beta_slow = positive(keys, "beta_slow", rope.beta_slow);
    rope.truncate = keys.flag("truncate").value_or(true);
  }
  for (const std::string& key : keys.rest())
    keys.refuse(key, str_cat("is not known for rope_type ", text_of(rope.type, kRopeTypes),
                             "; ignore it if it has no effect"));
  return rope;
}

RopeConfig read_rope(ConfigKeys& keys, std::int64_t most_positions) {
  std::optional<RopeConfig> found;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const ConfigJson* object = keys.find(name);
    if (object == nullptr || *object == ConfigJson::object()) continue;
    const RopeConfig rope = rope_of(*object, name, keys, most_positions);
    if (found && *found != rope) keys.refuse(name, "differs from rope_parameters");
    found = rope;
  }
  if (found) return *found;
  return {.theta = positive(keys, "rope_theta", RopeConfig{}.theta)};
}

// ---- the rest

void read_windows(ConfigKeys& keys, const ConfigFamily& family, CausalLMConfig& c) {
  if (family.window == ConfigFamily::Window::None) return;
  const bool by_layer = family.window == ConfigFamily::Window::ByLayer;
  if (by_layer && !keys.flag("use_sliding_window").value_or(false)) {
    for (const char* unused : {"sliding_window", "max_window_layers"}) keys.find(unused);
  } else if (!keys.is_null("sliding_window")) {
    c.sliding_window = keys.integer("sliding_window", 1, kMostOfSize).value_or(4096);
  } else {
    keys.find("sliding_window");
  }
  if (!by_layer) return;
  if (const ConfigJson* types = keys.find("layer_types")) {
    if (!types->is_array()) keys.refuse("layer_types", "is not a list");
    for (const ConfigJson& type : *types) {
      if (!type.is_string()) keys.refuse("layer_types", "is not a list of texts");
      c.layer_types.push_back(value_of(keys, "layer_types", type, kLayerTypes));
    }
    keys.integer("max_window_layers", 0, kMostOfSize);
  } else if (c.sliding_window > 0) {
    const std::int64_t full = keys.integer("max_window_layers", 0, kMostOfSize).value_or(28);
    for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
      c.layer_types.push_back(i < full ? LayerType::Full : LayerType::Sliding);
  }
}

// Gemma's is gelu by tanh, also where older files say gelu. Versions of transformers differ in
// which of the two keys they take.
void read_activation(ConfigKeys& keys, const ConfigFamily& family, CausalLMConfig& c) {
  if (const auto act = keys.text("hidden_act"))
    c.hidden_act = value_of(keys, "hidden_act", *act, kActivations);
  if (!family.gemma) return;
  if (keys.has("hidden_act") && c.hidden_act == HiddenAct::Silu)
    keys.refuse("hidden_act", "is not supported; supported is gelu_pytorch_tanh");
  c.hidden_act = HiddenAct::GeluTanh;
  const auto other = keys.text("hidden_activation");
  if (other && value_of(keys, "hidden_activation", *other, kActivations) != c.hidden_act)
    keys.refuse("hidden_activation", "is not supported; supported is gelu_pytorch_tanh");
}

void read_sizes(ConfigKeys& keys, const ConfigFamily& family, CausalLMConfig& c) {
  const auto size = [&](const char* key, std::int64_t otherwise) {
    return keys.integer(key, 1, kMostOfSize).value_or(otherwise);
  };
  c.vocab_size = size("vocab_size", family.vocab_size);
  c.hidden_size = size("hidden_size", family.hidden_size);
  c.intermediate_size = size("intermediate_size", family.intermediate_size);
  c.num_hidden_layers =
      keys.integer("num_hidden_layers", 1, kMostLayers).value_or(family.num_hidden_layers);
  c.num_attention_heads = size("num_attention_heads", family.num_attention_heads);
  const bool as_many = keys.is_null("num_key_value_heads");
  c.num_key_value_heads = size("num_key_value_heads", as_many ? 0 : family.key_value_heads);
  if (family.head_dim != 0 && keys.is_null("head_dim"))
    keys.refuse("head_dim", str_cat("is no size; leave it out for ", family.head_dim));
  c.head_dim = size("head_dim", family.head_dim);
  c.max_position_embeddings = size("max_position_embeddings", family.max_position_embeddings);
}

CausalLMConfig config_of(const ConfigJson& json, const std::string& file,
                         const std::vector<std::string>& ignore) {
  ConfigKeys keys(json, file, "", ignore);
  CausalLMConfig c;
  c.model_type = keys.text("model_type").value_or("");
  const ConfigFamily* family = find_family(c.model_type);
  if (family == nullptr)
    keys.refuse("model_type", str_cat("is not supported; supported are ", family_names(),
                                      ", and by open_model gpt2"));
  require_architecture(keys, family->architecture);
  read_sizes(keys, *family, c);
  read_activation(keys, *family, c);
  c.norm_offset = c.embedding_scale = family->gemma;
  c.rms_norm_eps = positive(keys, "rms_norm_eps", c.rms_norm_eps);
  c.initializer_range = keys.number("initializer_range").value_or(c.initializer_range);
  c.rope = read_rope(keys, c.max_position_embeddings);
  keys.find("rope_theta");
  c.qkv_bias = family->qkv_bias;
  if (family->attention_bias) c.qkv_bias = c.o_bias = keys.flag("attention_bias").value_or(false);
  if (family->mlp_bias) c.mlp_bias = keys.flag("mlp_bias").value_or(false);
  c.qk_norm = family->qk_norm;
  read_windows(keys, *family, c);
  c.attention_dropout = keys.number("attention_dropout").value_or(0);
  c.pad_token_id = keys.integer("pad_token_id", -c.vocab_size, c.vocab_size - 1);
  if (!json.contains("pad_token_id")) c.pad_token_id = family->pad_token_id;
  c.tie_word_embeddings = keys.flag("tie_word_embeddings").value_or(family->tie_word_embeddings);
  c.dtype = read_dtype(keys);
  refuse_rest(keys, c.model_type, [&](const std::string& key) {
    return effect_of(key, json.at(key), family->qkv_bias);
  });
  try {
    return checked(c);
  } catch (const Error& error) {
    fail(ErrorKind::BadInput, str_cat(file, ": ", error.message()));
  }
}

// ---- writing

ConfigJson rope_json(const RopeConfig& rope) {
  ConfigJson json{{"rope_type", text_of(rope.type, kRopeTypes)}};
  if (rope.type != RopeType::Default) json["factor"] = rope.factor;
  if (rope.type == RopeType::Llama3 || rope.type == RopeType::Yarn)
    json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.type == RopeType::Llama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type != RopeType::Yarn) return json;
  if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
  if (rope.mscale) json["mscale"] = *rope.mscale;
  if (rope.mscale_all_dim) json["mscale_all_dim"] = *rope.mscale_all_dim;
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  json["truncate"] = rope.truncate;
  return json;
}

void put_rope(ConfigJson& json, const RopeConfig& rope) {
  json["rope_theta"] = rope.theta;
  json["rope_scaling"] = rope.type == RopeType::Default ? ConfigJson() : rope_json(rope);
  ConfigJson five = rope_json(rope);
  five["rope_theta"] = rope.theta;
  json["rope_parameters"] = five;
}

void put_windows(ConfigJson& json, const ConfigFamily& family, const CausalLMConfig& c) {
  if (family.window == ConfigFamily::Window::None) return;
  json["sliding_window"] = c.sliding_window > 0 ? ConfigJson(c.sliding_window) : ConfigJson();
  if (family.window == ConfigFamily::Window::All) return;
  json["use_sliding_window"] = c.sliding_window > 0;
  ConfigJson types = ConfigJson::array();
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
    types.push_back(text_of(slides(c, i) ? LayerType::Sliding : LayerType::Full, kLayerTypes));
  json["layer_types"] = types;
}

ConfigJson json_of(const CausalLMConfig& c, const ConfigFamily& family) {
  ConfigJson json{{"architectures", ConfigJson::array({family.architecture})},
                  {"model_type", c.model_type},
                  {"vocab_size", c.vocab_size},
                  {"hidden_size", c.hidden_size},
                  {"intermediate_size", c.intermediate_size},
                  {"num_hidden_layers", c.num_hidden_layers},
                  {"num_attention_heads", c.num_attention_heads},
                  {"num_key_value_heads", c.num_key_value_heads},
                  {"head_dim", c.head_dim},
                  {"hidden_act", text_of(c.hidden_act, kActivations)},
                  {"max_position_embeddings", c.max_position_embeddings},
                  {"initializer_range", c.initializer_range},
                  {"rms_norm_eps", c.rms_norm_eps},
                  {"attention_dropout", c.attention_dropout},
                  {"tie_word_embeddings", c.tie_word_embeddings},
                  {"pad_token_id", c.pad_token_id ? ConfigJson(*c.pad_token_id) : ConfigJson()},
                  {"bos_token_id", nullptr},
                  {"eos_token_id", nullptr}};
  if (family.attention_bias) json["attention_bias"] = c.qkv_bias;
  if (family.mlp_bias) json["mlp_bias"] = c.mlp_bias;
  if (family.gemma) json["hidden_activation"] = json["hidden_act"];
  put_rope(json, c.rope);
  put_windows(json, family, c);
  return json;
}

}  // namespace

CausalLMConfig config_of_text(std::string text, const std::string& file,
                              const std::vector<std::string>& ignore) {
  CausalLMConfig config = config_of(parse_config(text, file), file, ignore);
  config.read_from = {std::move(text), ignore};
  return config;
}

CausalLMConfig read_config(const std::string& folder, const ReadConfigOptions& options) {
  ConfigFile file = config_file(folder);
  return config_of_text(std::move(file.text), file.path, options.ignore);
}

// The text that it was read from, if that still says the same.
std::string config_text(const CausalLMConfig& given) {
  const CausalLMConfig config = checked(given);
  const auto read = [](const ConfigJson& json, const std::vector<std::string>& ignored) {
    return config_of(json, "config.json", ignored);
  };
  if (std::string text = text_as_read(config, read); !text.empty()) return text;
  const ConfigFamily* family = find_family(config.model_type);
  CS_REQUIRE(family != nullptr, "config.json: model_type ", config.model_type, " is none of ",
             family_names());
  ConfigJson json = json_of(config, *family);
  put_dtype(json, config.dtype);
  CS_REQUIRE(config_of(json, "config.json", {}) == config, "config.json: a ", config.model_type,
             " has no such biases, norms, windows or positions; set another model_type");
  return json.dump(2) + "\n";
}

void write_config(const CausalLMConfig& config, const std::string& folder) {
  const std::string text = config_text(config);
  const std::string path = folder + "/config.json";
  const std::string part = path + ".part";
  std::error_code error;
  std::filesystem::remove(part, error);
  OutputFile::make(part, static_cast<std::int64_t>(text.size()));
  OutputFile file(part);
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
  file.close();
  std::filesystem::rename(part, path, error);
  CS_REQUIRE(!error, path, ": cannot be replaced: ", error.message());
  sync_folder(folder);
}

}  // namespace coshard::nn
