#pragma once
// The JSON of a config file, and its members by key. Any thread.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/styles/nn/gpt2_config.h>

namespace coshard::nn {

using ConfigJson = nlohmann::ordered_json;

// Error{BadInput} with `file`: not JSON (strict_json.h), or a key twice in one object.
ConfigJson parse_config(std::string_view text, const std::string& file);

// The dtype of the model, in the spellings that are there, or both. Error{BadInput}: no config has it.
void put_dtype(ConfigJson& json, DType dtype);

// What read_config makes of the text of `file` (config_json.cpp).
CausalLMConfig config_of_text(std::string text, const std::string& file,
                              const std::vector<std::string>& ignore);

GPT2Config gpt2_config_of_text(std::string text, const std::string& file,
                               const std::vector<std::string>& ignore);

// Takes members of one object, and keeps which were asked for. null counts as absent (but for
// is_null) where transformers takes it so, and is refused elsewhere.
// Error{BadInput}: file, key and value of a wrong type or outside the range.
class ConfigKeys {
 public:
  // `prefix` of a key in errors: "rope_scaling.".
  ConfigKeys(const ConfigJson& object, std::string file, std::string prefix,
             std::vector<std::string> ignore);

  bool has(const char* key) { return find(key) != nullptr; }
  bool is_null(const char* key);
  const ConfigJson* find(const char* key);  // null: absent
  std::optional<std::int64_t> integer(const char* key, std::int64_t least, std::int64_t most);
  std::optional<double> number(const char* key);
  std::optional<bool> flag(const char* key);
  std::optional<std::string> text(const char* key);
  // Members that nothing asked for.
  std::vector<std::string> rest() const;
  [[noreturn]] void refuse(const std::string& key, std::string_view why) const;

  const std::string& file() const { return file_; }
  const std::vector<std::string>& ignored() const { return ignore_; }

 private:
  const ConfigJson& object_;
  std::string file_, prefix_;
  std::vector<std::string> ignore_;
  std::set<std::string> asked_;
};

}  // namespace coshard::nn
