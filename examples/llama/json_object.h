#pragma once
// An object of a JSON file whose keys are a closed list: what nobody asks for is an error.
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>

#include "styles/nn/config_text.h"

namespace coshard::llama {

using Json = nn::ConfigJson;

class JsonObject {
 public:
  // `file` and `path` of the value in it ("" for the whole, "model") begin each error.
  // Error{BadInput}: it is no object.
  JsonObject(const Json& value, std::string file, std::string path);

  const Json* find(const char* key);  // null pointer: absent, or null
  const Json& need(const char* key);  // Error{BadInput}: absent, or null
  bool flag(const char* key, bool otherwise);
  bool flag(const char* key);  // Error{BadInput}: absent
  std::string text(const char* key, const char* otherwise = nullptr);
  JsonObject object(const char* key);

  // Keys that have no effect here, whatever they say.
  void skip(std::initializer_list<const char*> keys);
  // Keys that must be absent, null, false or "".
  void refuse_any(std::initializer_list<const char*> keys);
  // Error{BadInput}: there are keys that nobody has asked for.
  void finish() const;

  [[noreturn]] void refuse(const std::string& key, std::string_view why) const;
  const std::string& file() const { return file_; }
  std::string path_of(const std::string& key) const;

 private:
  const Json& value_;
  std::string file_, path_;
  std::set<std::string> asked_;
};

}  // namespace coshard::llama
