#include "styles/nn/config_text.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"

namespace coshard::nn {
namespace {

// Where null is as good as absent; elsewhere transformers fails.
constexpr std::string_view kMayBeNull[] = {"architectures",
                                           "attention_dropout",
                                           "attention_factor",
                                           "beta_fast",
                                           "beta_slow",
                                           "dtype",
                                           "head_dim",
                                           "hidden_activation",
                                           "layer_types",
                                           "mscale",
                                           "n_inner",
                                           "mscale_all_dim",
                                           "num_key_value_heads",
                                           "original_max_position_embeddings",
                                           "pad_token_id",
                                           "rope_parameters",
                                           "rope_scaling",
                                           "sliding_window",
                                           "torch_dtype"};

// A tree of the events, in their order.
class TreeOfEvents : public JsonEvents {
 public:
  explicit TreeOfEvents(const std::string& file) : file_(file) {}

  void begin_object() override { begin(ConfigJson::object()); }
  void end_object() override { end(); }
  void begin_array() override { begin(ConfigJson::array()); }
  void end_array() override { end(); }
  void key(std::string_view name) override {
    key_ = name;
    CS_REQUIRE(open_.back().keys.insert(key_).second, file_, ": key \"", shortened(name),
               "\" is there twice");
  }
  void text(std::string_view value) override { put(std::string(value)); }
  void count(std::uint64_t value) override { put(value); }
  void other(std::string_view value) override { put(ConfigJson::parse(value)); }

  ConfigJson tree() && { return std::move(root_); }

 private:
  ConfigJson* put(ConfigJson value) {
    if (open_.empty()) return &(root_ = std::move(value));
    ConfigJson& parent = *open_.back().value;
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    // A new key; the object's own functions would compare it with all others.
    return &parent.get_ref<ConfigJson::object_t&>().emplace_back(key_, std::move(value)).second;
  }
  void begin(ConfigJson value) { open_.push_back({put(std::move(value)), {}}); }
  void end() { open_.pop_back(); }

  struct Open {
    ConfigJson* value;
    std::unordered_set<std::string> keys;
  };

  const std::string& file_;
  ConfigJson root_;
  std::vector<Open> open_;  // nothing is added to a parent while a child is open
  std::string key_;
};

}  // namespace

ConfigJson parse_config(std::string_view text, const std::string& file) {
  TreeOfEvents events(file);
  read_json(text, file, events);
  return std::move(events).tree();
}

ConfigKeys::ConfigKeys(const ConfigJson& object, std::string file, std::string prefix,
                       std::vector<std::string> ignore)
    : object_(object),
      file_(std::move(file)),
      prefix_(std::move(prefix)),
      ignore_(std::move(ignore)) {}

const ConfigJson* ConfigKeys::find(const char* key) {
  asked_.insert(key);
  if (std::ranges::find(ignore_, key) != ignore_.end()) return nullptr;
  const auto at = object_.find(key);
  if (at == object_.end()) return nullptr;
  if (!at->is_null()) return &*at;
  if (std::ranges::find(kMayBeNull, key) == std::end(kMayBeNull)) refuse(key, "is no value");
  return nullptr;
}

bool ConfigKeys::is_null(const char* key) {
  return object_.contains(key) && object_.at(key).is_null() &&
         std::ranges::find(ignore_, key) == ignore_.end();
}

std::optional<std::int64_t> ConfigKeys::integer(const char* key, std::int64_t least,
                                                std::int64_t most) {
  const ConfigJson* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto is_within = [&](auto x) {
    return std::cmp_greater_equal(x, least) && std::cmp_less_equal(x, most);
  };
  const bool fits = value->is_number_unsigned()
                        ? is_within(value->get<std::uint64_t>())
                        : value->is_number_integer() && is_within(value->get<std::int64_t>());
  if (!fits) refuse(key, str_cat("is not an integer from ", least, " to ", most));
  return value->get<std::int64_t>();
}

std::optional<double> ConfigKeys::number(const char* key) {
  const ConfigJson* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(key, "is not a number");
  return value->get<double>();
}

std::optional<bool> ConfigKeys::flag(const char* key) {
  const ConfigJson* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "is not true or false");
  return value->get<bool>();
}

std::optional<std::string> ConfigKeys::text(const char* key) {
  const ConfigJson* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "is not a text");
  return value->get<std::string>();
}

std::vector<std::string> ConfigKeys::rest() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object_.items())
    if (!asked_.contains(key) && std::ranges::find(ignore_, key) == ignore_.end())
      keys.push_back(key);
  return keys;
}

void ConfigKeys::refuse(const std::string& key, std::string_view why) const {
  const auto at = object_.find(key);
  const std::string value = at == object_.end() ? "absent" : shortened(at->dump());
  fail(ErrorKind::BadInput, str_cat(file_, ": ", prefix_, shortened(key), " ", value, " ", why));
}

}  // namespace coshard::nn
