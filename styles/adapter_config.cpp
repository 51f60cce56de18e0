#include "styles/adapter_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>

#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"
#include "styles/nn/config_text.h"
#include "styles/python_pattern.h"

namespace coshard {
namespace {

using nn::ConfigJson;

constexpr std::uint64_t kMostOfConfig = 100'000'000;
constexpr std::string_view kPrefix = "base_model.model.";

// What tells where an adapter comes from, or has an effect only beside another key.
constexpr std::string_view kInert[] = {"auto_mapping",      "base_model_name_or_path",
                                       "inference_mode",    "loftq_config",
                                       "megatron_core",     "peft_version",
                                       "qalora_group_size", "revision",
                                       "runtime_config",    "ensure_weight_tying",
                                       "eva_config"};
// Of lora_A alone; others, such as "pissa", change the base.
constexpr std::string_view kInitializations[] = {"gaussian", "eva", "orthogonal"};

bool has_no_effect(const ConfigJson& value) {
  return value.is_null() || value == false || value == 0 || value == "none" ||
         (value.is_structured() && value.empty());
}

using Names = std::vector<std::string>;

// As PEFT: the whole path, or its end behind a dot.
bool is_named(std::string_view path, const Names& names) {
  return std::ranges::any_of(
      names, [&](const std::string& name) { return path == name || path.ends_with("." + name); });
}

// The number of the layer of "model.layers.3.mlp", as PEFT finds it: the first number behind one of
// these names, or behind any. nullopt: none.
std::optional<std::string> layer_in(std::string_view path, const Names& names) {
  Names parts{""};
  for (const char c : path)
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  for (std::size_t i = names.empty() ? 2 : 1; i + 1 < parts.size(); ++i) {
    const bool is_number = !parts[i].empty() && std::ranges::all_of(parts[i], [](char c) {
      return c >= '0' && c <= '9';
    });
    if (is_number && (names.empty() || std::ranges::count(names, parts[i - 1]) > 0))
      return parts[i];
  }
  return std::nullopt;
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
    if (const ConfigJson* turned = find("fan_in_fan_out");
        turned != nullptr && !turned->is_boolean())
      refuse("fan_in_fan_out", "is not true or false");
    config.rules = rules();
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
  std::vector<LayerRule> rules() {
    std::vector<LayerRule> all;
    const ConfigJson* targets = find("target_modules");
    if (targets != nullptr && targets->empty()) refuse("target_modules", "is no list of names");
    if (targets != nullptr && *targets != "all-linear")
      all.push_back({"target_modules", names_or_pattern("target_modules")});
    const ConfigJson* excluded = find("exclude_modules");
    if (excluded != nullptr && !excluded->empty() && *excluded != "")
      all.push_back({"exclude_modules", std::not_fn(names_or_pattern("exclude_modules"))});
    find("layers_pattern");
    const ConfigJson* layers = find("layers_to_transform");
    if (layers == nullptr || (layers->is_array() && layers->empty())) return all;
    if (targets == nullptr || !targets->is_array())
      refuse("layers_to_transform", "is not supported without a list in target_modules");
    all.push_back({"layers_to_transform", layers_of(*layers)});
    return all;
  }
  std::function<bool(std::string_view)> names_or_pattern(const std::string& key) {
    const ConfigJson& value = *find(key);
    if (!value.is_string())
      return [names = names(key)](std::string_view path) { return is_named(path, names); };
    auto pattern = python_fullmatch(value.get<std::string>());
    if (!pattern) refuse(key, "is a regular expression that is not supported; a list of names is");
    return pattern;
  }
  Names names(const std::string& key) {
    const ConfigJson* value = find(key);
    if (value == nullptr) return {};
    if (value->is_string()) return {value->get<std::string>()};
    if (!value->is_array()) refuse(key, "is no list of names");
    Names all;
    for (const ConfigJson& name : *value) {
      if (!name.is_string()) refuse(key, "is no list of names");
      all.push_back(name.get<std::string>());
    }
    return all;
  }
  std::function<bool(std::string_view)> layers_of(const ConfigJson& value) {
    std::set<std::string> numbers;
    for (const ConfigJson& layer : value.is_array() ? value : ConfigJson::array({value})) {
      if (!layer.is_number_unsigned())
        refuse("layers_to_transform", "is not the number of a layer, nor a list of such numbers");
      numbers.insert(layer.dump());
    }
    Names before = names("layers_pattern");
    std::erase(before, "");
    for (const std::string& name : before)
      if (!std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; }))
        refuse("layers_pattern", "is not a name, nor a list of names");
    return [numbers, before](std::string_view path) {
      const std::optional<std::string> layer = layer_in(path, before);
      return layer && numbers.contains(*layer);
    };
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

bool is_there_in(const std::string& folder, std::string_view name) {
  return is_there((std::filesystem::path(folder) / name).string());
}

void require_admitted(const SafetensorsHeader& file, std::string_view name, std::string_view path,
                      const AdapterConfig& config) {
  for (const LayerRule& rule : config.rules)
    CS_REQUIRE(rule.admits(path), file.path(), ": has '", shortened(name), "', but ", rule.key,
               " of ", kAdapterConfig,
               " leaves that layer out, as PEFT would; correct one of the two");
}

}  // namespace

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = (std::filesystem::path(folder) / kAdapterConfig).string();
  const ConfigJson json = nn::parse_config(read_text(file, kMostOfConfig), file);
  AdapterConfig config = ConfigReader(json, file).read();
  const std::string stem = kAdapterStem;
  CS_REQUIRE(!is_there_in(folder, stem + ".bin") || is_there_in(folder, stem + ".safetensors") ||
                 is_there_in(folder, stem + ".safetensors.index.json"),
             folder, ": has ", stem, ".bin, which is not read; save the adapter with ",
             "safe_serialization=True");
  return config;
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
    CS_REQUIRE(name.find(".base_layer.") == std::string_view::npos, file.path(), ": '",
               shortened(name), "' is a weight of the base; save the adapter with ",
               "save_embedding_layers=False");
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
    require_admitted(file, name, path, config);
    paths.insert(path);
  }
  CS_REQUIRE(!paths.empty(), file.path(), ": has no adapters");
  return {paths.begin(), paths.end()};
}

}  // namespace coshard
