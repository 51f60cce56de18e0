#include "examples/llama/tokenizer_config.h"

#include <algorithm>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"
#include "examples/llama/json_object.h"

namespace coshard::llama {
namespace {

constexpr std::uint64_t kMostBeside = 100'000'000;  // bytes
constexpr std::string_view kRemedy =
    "; AutoTokenizer.from_pretrained(folder).save_pretrained(folder) makes them agree";

// "<s>", or the content of {"content": "<s>", …}; "": neither, such as add_bos_token's true.
std::string content_of(const Json& token) {
  const Json* text = &token;
  if (token.is_object() && token.contains("content")) text = &token.at("content");
  return text->is_string() ? text->get<std::string>() : std::string();
}

class FileBeside {
 public:
  FileBeside(const Json& json, const std::string& file, const TokenizerFacts& own)
      : json_(json), object_(json, file, ""), own_(own) {}

  // bos_token, image_token and their like, and lists or objects of further ones.
  void check_special_tokens() const {
    for (const auto& [key, value] : json_.items()) {
      if (key.ends_with("_token")) require(key, value);
      if (key != "additional_special_tokens" && key != "extra_special_tokens") continue;
      if (value.is_structured())
        for (const auto& [name, token] : value.items()) require(key, token);
    }
  }

  // Tokens by id, as tokenizer_config.json has them.
  void check_decoder() {
    if (object_.find("added_tokens_decoder") == nullptr) return;
    object_.object("added_tokens_decoder");
    for (const auto& [id, value] : json_.at("added_tokens_decoder").items()) {
      const std::string path = str_cat("added_tokens_decoder.", id);
      JsonObject token(value, object_.file(), path);
      const AddedToken& own = require(path, value);
      const bool special = token.flag("special", false);
      const bool same = id == std::to_string(own.id) && special == own.special &&
                        token.flag("single_word", false) == own.single_word &&
                        token.flag("lstrip", false) == own.lstrip &&
                        token.flag("rstrip", false) == own.rstrip &&
                        (token.flag("normalized", !special) == own.normalized || !own_.normalizes);
      if (!same) refuse(path, value, "differs from that token in tokenizer.json");
    }
  }

  // added_tokens.json: ids by token.
  void check_ids() const {
    for (const auto& [token, id] : json_.items())
      if (Json(require(token, Json(token)).id) != id)
        refuse(token, id, "is another id than in tokenizer.json");
  }

  void check_options() {
    if (object_.flag("split_special_tokens", false))
      object_.refuse(
          "split_special_tokens",
          "is not supported; leave it out, and special tokens in a text are one id each");
    const bool adds_space = object_.flag("add_prefix_space", false);
    if (takes_prefix_space() && adds_space != own_.adds_space)
      fail(ErrorKind::BadInput,
           str_cat(object_.file(), ": add_prefix_space is ", adds_space,
                   ", and another in tokenizer.json; write there what the model was trained with"));
  }

 private:
  // Others read tokenizer.json alone.
  bool takes_prefix_space() const {
    const auto name = json_.find("tokenizer_class");
    if (name == json_.end() || !name->is_string()) return false;
    const auto& text = name->get_ref<const std::string&>();
    return text.starts_with("GPT2Tokenizer") || text.starts_with("Qwen2Tokenizer");
  }
  const AddedToken& require(const std::string& key, const Json& token) const {
    static const AddedToken kNone;
    const std::string content = content_of(token);
    if (content.empty()) return kNone;
    const auto at = std::ranges::find(own_.added, content, &AddedToken::content);
    if (at == own_.added.end()) refuse(key, token, "is no added token of tokenizer.json");
    return *at;
  }
  [[noreturn]] void refuse(const std::string& key, const Json& value, std::string_view why) const {
    fail(ErrorKind::BadInput, str_cat(object_.file(), ": ", shortened(key), " ",
                                      shortened(value.dump()), " ", why, kRemedy));
  }

  const Json& json_;
  JsonObject object_;
  const TokenizerFacts& own_;
};

}  // namespace

void check_files_beside(const std::string& folder, const TokenizerFacts& own) {
  for (const std::string name :
       {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    const std::string path = str_cat(folder, "/", name);
    if (!is_there(path)) continue;
    const Json json = nn::parse_config(read_text(path, kMostBeside), path);
    FileBeside file(json, path, own);
    if (name == "added_tokens.json") {
      file.check_ids();
      continue;
    }
    file.check_special_tokens();
    if (name != "tokenizer_config.json") continue;
    file.check_decoder();
    file.check_options();
  }
}

}  // namespace coshard::llama
