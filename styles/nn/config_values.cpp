#include "styles/nn/config_values.h"

#include <filesystem>

#include "dtensor/checkpoint/file.h"
#include "styles/nn/config_family.h"

namespace coshard::nn {
namespace {

constexpr std::uint64_t kMostBytes = 4 << 20;
constexpr Spelling<DType> kDTypes[] = {{"float32", DType::F32},
                                       {"bfloat16", DType::BF16},
                                       {"float16", DType::F16},
                                       {"float64", DType::F64}};

}  // namespace

double positive(ConfigKeys& keys, const char* key, std::optional<double> otherwise) {
  const std::optional<double> value = keys.has(key) ? keys.number(key) : otherwise;
  if (!value) keys.refuse(key, "is needed");
  if (!(*value > 0)) keys.refuse(key, "is not positive");
  return *value;
}

DType read_dtype(ConfigKeys& keys) {
  std::optional<DType> found;
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto text = keys.text(key);
    if (!text) continue;
    const DType dtype = value_of(keys, key, *text, kDTypes);
    if (found && *found != dtype) keys.refuse(key, "differs from dtype");
    found = dtype;
  }
  return found.value_or(DType::F32);
}

void put_dtype(ConfigJson& json, DType dtype) {
  const char* const name = text_of(dtype, kDTypes);
  CS_REQUIRE(name != nullptr, "config.json: a model in ", dtype);
  const bool spelled = json.contains("dtype") || json.contains("torch_dtype");
  for (const char* key : {"dtype", "torch_dtype"})
    if (!spelled || json.contains(key)) json[key] = name;
}

void require_architecture(ConfigKeys& keys, const char* architecture) {
  const ConfigJson* given = keys.find("architectures");
  if (given != nullptr && *given != ConfigJson::array({architecture}))
    keys.refuse("architectures",
                str_cat("is not [\"", architecture, "\"], which this model_type is read as"));
}

void refuse_rest(const ConfigKeys& keys, const std::string& model_type,
                 const std::function<KeyEffect(const std::string&)>& effect_of) {
  for (const std::string& key : keys.rest()) {
    const KeyEffect effect = effect_of(key);
    if (effect == KeyEffect::Refused && key == "quantization_config")
      keys.refuse(key,
                  "is not supported: the files hold quantized weights; take the folder of the "
                  "model before it was quantized");
    if (effect == KeyEffect::Refused)
      keys.refuse(key, str_cat("changes what the model computes and is not supported; to read the "
                               "rest, ignore this key"));
    if (effect == KeyEffect::Unknown)
      keys.refuse(key, str_cat("is not known for model_type ", model_type,
                               "; ignore this key if it has no effect"));
  }
}

ConfigFile config_file(const std::string& folder) {
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(folder, error);
  std::string path = is_file ? folder : folder + "/config.json";
  return {read_text(path, kMostBytes), path};
}

}  // namespace coshard::nn
