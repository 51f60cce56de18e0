#pragma once
// Values of a config.json that several kinds of models have. Any thread.
#include <functional>

#include <coshard/runtime/error.h>
#include "styles/nn/config_text.h"

namespace coshard::nn {

inline constexpr std::int64_t kMostOfSize = std::int64_t{1} << 31;
inline constexpr std::int64_t kMostLayers = 100000;

template <class Value>
struct Spelling {
  const char* text;
  Value value;
};
// The first of each value is written.
inline constexpr Spelling<HiddenAct> kActivations[] = {
    {"silu", HiddenAct::Silu},         {"swish", HiddenAct::Silu},
    {"gelu", HiddenAct::Gelu},         {"gelu_pytorch_tanh", HiddenAct::GeluTanh},
    {"gelu_new", HiddenAct::GeluTanh}, {"gelu_fast", HiddenAct::GeluTanh}};

// Error{BadInput} names the key, its value and what is known.
template <class Value, std::size_t N>
Value value_of(const ConfigKeys& keys, const char* key, const std::string& text,
               const Spelling<Value> (&known)[N]) {
  std::string names;
  for (const auto& [name, value] : known) {
    if (text == name) return value;
    names += str_cat(names.empty() ? "" : ", ", name);
  }
  keys.refuse(key, str_cat("is not supported; supported are ", names));
}

template <class Value, std::size_t N>
const char* text_of(Value wanted, const Spelling<Value> (&known)[N]) {
  for (const auto& [name, value] : known)
    if (value == wanted) return name;
  return nullptr;
}

// Error{BadInput}: absent without `otherwise`, or not positive.
double positive(ConfigKeys& keys, const char* key, std::optional<double> otherwise);

// Of dtype and torch_dtype; f32 if there is neither.
DType read_dtype(ConfigKeys& keys);

void require_architecture(ConfigKeys& keys, const char* architecture);

enum class KeyEffect : std::uint8_t;
// Refuses what `effect_of(key)` says changes the model, and what it does not know, of the rest.
void refuse_rest(const ConfigKeys& keys, const std::string& model_type,
                 const std::function<KeyEffect(const std::string&)>& effect_of);

// The bytes of `folder`/config.json, or of the file itself, and its path.
struct ConfigFile {
  std::string text, path;
};
ConfigFile config_file(const std::string& folder);

// What a config was read from, if it still says the same, with another dtype at most; else "".
// `read` makes a Config of the JSON.
template <class Config, class Read>
std::string text_as_read(const Config& config, const Read& read) {
  const ConfigText& from = config.read_from;
  if (from.text.empty()) return "";
  ConfigJson json = parse_config(from.text, "config.json");
  Config was = read(json, from.ignored);
  if (was == config) return from.text;
  was.dtype = config.dtype;
  put_dtype(json, config.dtype);
  return was == config ? json.dump(2) + "\n" : "";
}

}  // namespace coshard::nn
