#include "examples/llama/json_object.h"

#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"

namespace coshard::llama {

JsonObject::JsonObject(const Json& value, std::string file, std::string path)
    : value_(value), file_(std::move(file)), path_(std::move(path)) {
  CS_REQUIRE(value.is_object(), file_, ": ", path_, " ", shortened(value.dump()),
             " is not an object");
}

std::string JsonObject::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

void JsonObject::refuse(const std::string& key, std::string_view why) const {
  const auto at = value_.find(key);
  const std::string value = at == value_.end() ? "absent" : shortened(at->dump());
  fail(ErrorKind::BadInput, str_cat(file_, ": ", shortened(path_of(key)), " ", value, " ", why));
}

const Json* JsonObject::find(const char* key) {
  asked_.insert(key);
  const auto at = value_.find(key);
  return at == value_.end() || at->is_null() ? nullptr : &*at;
}

const Json& JsonObject::need(const char* key) {
  const Json* value = find(key);
  if (value == nullptr) refuse(key, "must be there");
  return *value;
}

bool JsonObject::flag(const char* key, bool otherwise) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "is not true or false");
  return value->get<bool>();
}

bool JsonObject::flag(const char* key) {
  need(key);
  return flag(key, false);
}

std::string JsonObject::text(const char* key, const char* otherwise) {
  const Json* value = find(key);
  if (value == nullptr && otherwise != nullptr) return otherwise;
  if (!need(key).is_string()) refuse(key, "is not a text");
  return value->get<std::string>();
}

JsonObject JsonObject::object(const char* key) { return {need(key), file_, path_of(key)}; }

void JsonObject::skip(std::initializer_list<const char*> keys) {
  for (const char* key : keys) asked_.insert(key);
}

void JsonObject::refuse_any(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* value = find(key);
    if (value != nullptr && *value != Json(false) && *value != Json(""))
      refuse(key, "is not supported");
  }
}

void JsonObject::finish() const {
  for (const auto& [key, value] : value_.items())
    if (!asked_.contains(key)) refuse(key, "is not supported");
}

}  // namespace coshard::llama
