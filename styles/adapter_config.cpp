#include "styles/adapter_config.h"

#include <regex.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"
#include "styles/nn/config_text.h"

namespace coshard {
namespace {

using nn::ConfigJson;

constexpr std::uint64_t kMostOfConfig = 100'000'000;
constexpr std::size_t kMostOfPattern = 1000;  // bytes
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

// A regular expression of Python as an extended one of POSIX with GNU's letters, which finds the same
// whole matches; nullopt: it has what this does not translate (lookaround, flags, numbers and names
// of groups, possessive quantifiers), or is wrong.
class Translation {
 public:
  explicit Translation(std::string_view text) : rest_(text) {}

  std::optional<std::string> run() {
    if (rest_.size() > kMostOfPattern || !std::ranges::all_of(rest_, is_ascii)) return std::nullopt;
    while (!rest_.empty())
      if (!step()) return std::nullopt;
    if (depth_ != 0) return std::nullopt;
    return "^(" + out_ + ")$";
  }

 private:
  static bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
  static bool is_one_of(char c, std::string_view of) { return of.find(c) != std::string::npos; }
  char take() {
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }
  bool take_if(std::string_view text) {
    if (!rest_.starts_with(text)) return false;
    rest_.remove_prefix(text.size());
    return true;
  }

  bool step() {
    const char c = take();
    if (c == '\\') return escape();
    if (c == '[') return set();
    if (is_one_of(c, "*+?{")) return quantifier(c);
    can_repeat_ = c != '(' && c != '|';
    if (c == '(' && rest_.starts_with("?") && !take_if("?:")) return false;
    depth_ += c == '(' ? 1 : c == ')' ? -1 : 0;
    after_group_ = c == ')';
    out_ += c;
    return depth_ >= 0;
  }
  bool escape() {
    if (rest_.empty()) return false;
    const char c = take();
    can_repeat_ = !is_one_of(c, "bB");
    after_group_ = false;
    if (c == 'd' || c == 'D') {
      out_ += c == 'd' ? "[0-9]" : "[^0-9]";
    } else if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      if (!is_one_of(c, "wWsSbB")) return false;
      out_ += std::string("\\") + c;
    } else {
      out_ += is_one_of(c, "<>'`") ? std::string(1, c) : std::string("\\") + c;  // GNU has others
    }
    return true;
  }
  bool set() {
    out_ += take_if("^") ? "[^" : "[";
    if (rest_.starts_with("]")) return false;
    while (!rest_.empty()) {
      const char c = take();
      out_ += c;
      if (c == ']') {
        can_repeat_ = true;
        after_group_ = false;
        return true;
      }
      if (c == '[') return false;
      if (c == '\\' && !escape_in_set()) return false;
    }
    return false;
  }
  bool escape_in_set() {
    out_.pop_back();
    const char c = rest_.empty() ? '\0' : take();
    if (c == 'd') return out_ += "0-9", true;
    if (c == 'w') return out_ += "a-zA-Z0-9_", true;
    if (c == 's') return out_ += " \t\n\r\f\v", true;
    out_ += c;
    return std::ispunct(static_cast<unsigned char>(c)) != 0 && !is_one_of(c, "-^[]");
  }
  bool quantifier(char c) {
    if (!can_repeat_) return false;
    out_ += c;
    if (c == '{' && !times()) return false;
    can_repeat_ = false;  // neither possessive nor twice
    take_if("?");         // lazy: the same whole matches
    return true;
  }
  // "3}", "3,}" or "3,5}" of a single character; groups would take memory as products do.
  bool times() {
    const std::size_t end = rest_.find('}'), comma = rest_.find(',');
    if (end == std::string_view::npos || after_group_) return false;
    for (std::size_t i = 0; i < end; ++i)
      if (i != comma && std::isdigit(static_cast<unsigned char>(rest_[i])) == 0) return false;
    if (end == 0 || end > 7 || comma == 0) return false;
    out_ += rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    return true;
  }

  std::string_view rest_;
  std::string out_;
  int depth_ = 0;
  bool can_repeat_ = false, after_group_ = false;
};

// null: it cannot be read.
std::shared_ptr<const ::regex_t> pattern_of(const std::string& text) {
  const std::optional<std::string> translated = Translation(text).run();
  auto made = std::make_unique<::regex_t>();
  if (!translated || ::regcomp(made.get(), translated->c_str(), REG_EXTENDED | REG_NOSUB) != 0)
    return nullptr;
  return {made.release(), [](::regex_t* pattern) {
            ::regfree(pattern);
            delete pattern;
          }};
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
    const std::shared_ptr<const ::regex_t> pattern = pattern_of(value.get<std::string>());
    if (!pattern) refuse(key, "is a regular expression that is not supported; a list of names is");
    return [pattern](std::string_view path) {
      return ::regexec(pattern.get(), std::string(path).c_str(), 0, nullptr, 0) == 0;
    };
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
