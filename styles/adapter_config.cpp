#include "styles/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"
#include "styles/nn/config_text.h"

namespace coshard {
namespace {

using nn::ConfigJson;

constexpr std::uint64_t kMostOfConfig = 100'000'000;
constexpr std::string_view kPrefix = "base_model.model.";

// What tells where an adapter comes from, or has an effect only beside another key.
constexpr std::string_view kInert[] = {
    "auto_mapping", "base_model_name_or_path", "inference_mode",  "layers_pattern",
    "loftq_config", "megatron_core",           "peft_version",    "qalora_group_size",
    "revision",     "runtime_config",          "exclude_modules", "ensure_weight_tying",
    "eva_config"};
// Of lora_A alone; others, such as "pissa", change the base.
constexpr std::string_view kInitializations[] = {"gaussian", "eva", "orthogonal"};

bool has_no_effect(const ConfigJson& value) {
  return value.is_null() || value == false || value == 0 || value == "none" ||
         (value.is_structured() && value.empty());
}

class ConfigReader {
 public:
  ConfigReader(const ConfigJson& json, const std::string& file) : json_(json), file_(file) {}

  AdapterConfig read() {
    if (const ConfigJson* type = find("peft_type"); type == nullptr || *type != "LORA")
      refuse("peft_type", "is not \"LORA\"");
    if (const ConfigJson* task = find("task_type"); task != nullptr && *task != "CAUSAL_LM")
      refuse("task_type", "is not supported; \"CAUSAL_LM\" is");
    if (const ConfigJson* first = find("init_lora_weights");
        first != nullptr && !first->is_boolean() && !std::ranges::count(kInitializations, *first))
      refuse("init_lora_weights", "changes the base, which is not supported; convert the adapter");
    AdapterConfig config;
    config.options.rank = static_cast<std::int64_t>(number("r", 1, 1 << 20));
    config.options.alpha = number("lora_alpha", -1e30, 1e30);
    if (find("lora_dropout") != nullptr) config.options.dropout = number("lora_dropout", 0, 1);
    if (config.options.dropout == 1) refuse("lora_dropout", "is not below 1");
    const ConfigJson* scaled = find("use_rslora");
    if (scaled != nullptr && !scaled->is_boolean()) refuse("use_rslora", "is not true or false");
    config.options.rslora = scaled != nullptr && *scaled == true;
    config.targets = targets();
    for (const auto& [key, value] : json_.items())
      if (!asked_.contains(key) && !std::ranges::count(kInert, key) && !has_no_effect(value))
        refuse(key, "is not supported");
    return config;
  }

 private:
  const ConfigJson* find(const std::string& key) {
    asked_.insert(key);
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  double number(const std::string& key, double least, double most) {
    const ConfigJson* value = find(key);
    const bool whole = key == "r";
    if (value == nullptr || !value->is_number() || (whole && !value->is_number_integer()) ||
        !(value->get<double>() >= least && value->get<double>() <= most))
      refuse(key,
             str_cat("is not ", whole ? "an integer" : "a number", " from ", least, " to ", most));
    return value->get<double>();
  }
  std::optional<std::vector<std::string>> targets() {
    const ConfigJson* value = find("target_modules");
    if (value == nullptr || value->is_string()) return std::nullopt;
    std::vector<std::string> all;
    if (!value->is_array() || value->empty()) refuse("target_modules", "is no list of names");
    for (const ConfigJson& name : *value) {
      if (!name.is_string()) refuse("target_modules", "is no list of names");
      all.push_back(name.get<std::string>());
    }
    return all;
  }
  [[noreturn]] void refuse(const std::string& key, std::string_view why) const {
    const auto at = json_.find(key);
    fail(ErrorKind::BadInput,
         str_cat(file_, ": ", shortened(key), " ",
                 at == json_.end() ? "absent" : shortened(at->dump()), " ", why));
  }

  const ConfigJson& json_;
  const std::string& file_;
  std::set<std::string> asked_;
};

// As PEFT: the whole path, or its end behind a dot.
bool is_target(std::string_view path, const std::vector<std::string>& targets) {
  return std::ranges::any_of(targets, [&](const std::string& target) {
    return path == target || path.ends_with("." + target);
  });
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = (std::filesystem::path(folder) / kAdapterConfig).string();
  const ConfigJson json = nn::parse_config(read_text(file, kMostOfConfig), file);
  return ConfigReader(json, file).read();
}

std::string adapter_config_text(const nn::LoraOptions& options,
                                const std::vector<std::string>& targets, const std::string& base) {
  ConfigJson json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = nullptr;
  if (!base.empty()) json["base_model_name_or_path"] = base;
  json["r"] = options.rank;
  const bool whole = options.alpha == std::floor(options.alpha) && std::abs(options.alpha) < 1e15;
  json["lora_alpha"] = options.alpha;
  if (whole) json["lora_alpha"] = static_cast<std::int64_t>(options.alpha);
  json["lora_dropout"] = options.dropout;
  json["target_modules"] = targets;
  json["use_rslora"] = options.rslora;
  json["bias"] = "none";
  json["fan_in_fan_out"] = false;
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  json["use_dora"] = false;
  json["modules_to_save"] = nullptr;
  json["rank_pattern"] = ConfigJson::object();
  json["alpha_pattern"] = ConfigJson::object();
  // The name of a folder may be no UTF-8.
  return json.dump(2, ' ', false, ConfigJson::error_handler_t::replace) + "\n";
}

std::string lora_name(std::string_view path, char which) {
  return str_cat(kPrefix, path, ".lora_", which, ".weight");
}

std::vector<std::string> adapted_paths(const SafetensorsHeader& file, const AdapterConfig& config) {
  std::set<std::string> paths;
  for (std::size_t i = 0; i < file.size(); ++i) {
    const StoredTensor tensor = file[i];
    const std::string_view name = tensor.name;
    constexpr std::string_view kEnd = ".lora_A.weight";
    const bool is_a = name.ends_with(kEnd), is_b = name.ends_with(".lora_B.weight");
    CS_REQUIRE(
        (is_a || is_b) && name.starts_with(kPrefix) && name.size() > kPrefix.size() + kEnd.size(),
        file.path(), ": '", shortened(name), "' is not ", kPrefix,
        "<path>.lora_A.weight or .lora_B.weight of a linear layer");
    const std::string path(name.substr(kPrefix.size(), name.size() - kPrefix.size() - kEnd.size()));
    const auto rank = static_cast<std::uint64_t>(config.options.rank);
    CS_REQUIRE(tensor.shape.size() == 2 && tensor.shape[is_a ? 0 : 1] == rank, file.path(), ": '",
               shortened(name), "' has shape ", sizes_text(tensor.shape), ", and r is ", rank);
    const std::string other = lora_name(path, is_a ? 'B' : 'A');
    CS_REQUIRE(file.find(other), file.path(), ": has '", shortened(name), "' without '",
               shortened(other), "'");
    CS_REQUIRE(!config.targets || is_target(path, *config.targets), file.path(), ": has '",
               shortened(name), "', which target_modules does not name");
    paths.insert(path);
  }
  CS_REQUIRE(!paths.empty(), file.path(), ": has no adapters");
  return {paths.begin(), paths.end()};
}

}  // namespace coshard
