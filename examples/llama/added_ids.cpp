#include "examples/llama/added_ids.h"

#include <string>

#include <coshard/runtime/error.h>

namespace coshard::llama {
namespace {

// {"id": "<s>", "ids": [1], "tokens": ["<s>"]}
std::vector<std::int64_t> ids_of_special(JsonObject special) {
  const Json& list = special.need("ids");
  special.skip({"id", "tokens"});
  special.finish();
  if (!list.is_array()) special.refuse("ids", "is not a list");
  std::vector<std::int64_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_unsigned()) special.refuse("ids", "holds what is no id");
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

void read_template(JsonObject& processor, AddedIds& added) {
  if (added.has_template)
    processor.refuse("type", "is there twice, which is not supported; leave one out");
  added.has_template = true;
  const Json& parts = processor.need("single");
  JsonObject specials = processor.object("special_tokens");
  processor.skip({"pair"});  // no two texts are encoded as one
  if (!parts.is_array()) processor.refuse("single", "is not a list");
  int texts = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    JsonObject part(parts[i], processor.file(), processor.path_of(str_cat("single[", i, "]")));
    const bool is_text = part.find("Sequence") != nullptr;
    JsonObject named = part.object(is_text ? "Sequence" : "SpecialToken");
    part.finish();
    const std::string id = named.text("id");
    named.skip({"type_id"});
    named.finish();
    if (is_text && (id != "A" || ++texts > 1)) named.refuse("id", "is not the one text, A");
    if (is_text) continue;
    const std::vector<std::int64_t> ids = ids_of_special(specials.object(id.c_str()));
    auto& side = texts == 0 ? added.before : added.behind;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (texts != 1) processor.refuse("single", "has no text");
}

void add_processor(JsonObject processor, AddedIds& added) {
  const std::string type = processor.text("type");
  if (type == "ByteLevel") {
    processor.skip({"add_prefix_space", "trim_offsets", "use_regex"});  // of offsets
  } else if (type == "TemplateProcessing") {
    read_template(processor, added);
  } else if (type == "Sequence") {
    const Json& list = processor.need("processors");
    if (!list.is_array()) processor.refuse("processors", "is not a list");
    for (std::size_t i = 0; i < list.size(); ++i)
      add_processor({list[i], processor.file(), processor.path_of(str_cat("processors[", i, "]"))},
                    added);
  } else {
    processor.refuse("type", "is none of ByteLevel, TemplateProcessing and Sequence");
  }
  processor.finish();
}

}  // namespace

AddedIds AddedIds::of_json(JsonObject& tokenizer) {
  AddedIds added;
  if (tokenizer.find("post_processor") != nullptr)
    add_processor(tokenizer.object("post_processor"), added);
  return added;
}

}  // namespace coshard::llama
