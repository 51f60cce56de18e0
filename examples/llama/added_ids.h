#pragma once
// The ids that a tokenizer puts before and behind each text, such as the beginning of a sequence:
// `post_processor` of tokenizer.json. Values.
#include <cstdint>
#include <vector>

#include "examples/llama/json_object.h"

namespace coshard::llama {

struct AddedIds {
  std::vector<std::int64_t> before, behind;
  bool has_template = false;

  // null, ByteLevel, TemplateProcessing (its template of one text) and sequences of them.
  // Error{BadInput}: another type, key or value; a second TemplateProcessing.
  static AddedIds of_json(JsonObject& tokenizer);
};

}  // namespace coshard::llama
