#include "tools/ckpt/gguf_tokenizer.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"
#include "profiling/json.h"

namespace coshard::tools {
namespace {

// Words, numbers of up to three digits, other characters and white space, as Llama 3 cuts them; Qwen2 has single digits.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}
Json split(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}
Json sequence(Json first, Json second) {
  return {{"type", "Sequence"},
          {"pretokenizers", Json::array({std::move(first), std::move(second)})}};
}

// What tokenizer.ggml.pre stands for.
struct Kind {
  Json pre_tokenizer, normalizer;
  bool ignore_merges = false, adds_bos = false;
};

Kind kind_of(const Gguf& file) {
  const std::string model = file.text("tokenizer.ggml.model").value_or("absent");
  CS_REQUIRE(model == "gpt2", file.path(), ": tokenizer.ggml.model ", shortened(model),
             " is not gpt2; only byte-level BPE is supported");
  const std::string pre = file.text("tokenizer.ggml.pre").value_or("absent");
  if (pre == "gpt-2") return {byte_level(true), {}};
  if (pre == "llama-bpe") return {sequence(split(kLlama3), byte_level(false)), {}, true, true};
  if (pre == "qwen2") return {sequence(split(kQwen2), byte_level(false)), {{"type", "NFC"}}};
  if (pre == "smollm")
    return {sequence({{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)), {}};
  fail(ErrorKind::BadInput, str_cat(file.path(), ": tokenizer.ggml.pre ", shortened(pre),
                                    " is none of gpt-2, llama-bpe, qwen2 and smollm"));
}

class TokenizerOfGguf {
 public:
  TokenizerOfGguf(const Gguf& file, std::int64_t vocab_size)
      : file_(file), kind_(kind_of(file)), tokens_(needed_texts("tokenizer.ggml.tokens")) {
    CS_REQUIRE(std::ssize(tokens_) <= vocab_size, file.path(), ": tokenizer.ggml.tokens has ",
               tokens_.size(), " texts for a vocabulary of ", vocab_size);
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (const auto [at, is_new] = ids_.emplace(tokens_[id], id); !is_new)
        refuse("tokens", id, tokens_[id], str_cat("is token ", at->second, " as well"));
  }

  Json tokenizer() const {
    Json vocab = Json::object();
    auto& members = vocab.get_ref<Json::object_t&>();  // whose own functions search linearly
    for (std::size_t id = 0; id < tokens_.size(); ++id) members.emplace_back(tokens_[id], id);
    Json model{{"type", "BPE"},
               {"dropout", nullptr},
               {"unk_token", nullptr},
               {"continuing_subword_prefix", nullptr},
               {"end_of_word_suffix", nullptr},
               {"fuse_unk", false},
               {"byte_fallback", false},
               {"ignore_merges", kind_.ignore_merges},
               {"vocab", std::move(vocab)},
               {"merges", merges()}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added_tokens()},
            {"normalizer", kind_.normalizer},
            {"pre_tokenizer", kind_.pre_tokenizer},
            {"post_processor", post_processor()},
            {"decoder", byte_level(true)},
            {"model", std::move(model)}};
  }

  Json tokenizer_config(std::int64_t context) const {
    Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"clean_up_tokenization_spaces", false},
                {"model_max_length", context}};
    for (const auto& [name, key] : kNamed)
      if (const auto id = named(key)) config[name] = tokens_[static_cast<std::size_t>(*id)];
    if (const auto text = file_.text("tokenizer.chat_template")) config["chat_template"] = *text;
    return config;
  }

  Json generation_config() const {
    Json config = Json::object();
    std::vector<std::int64_t> ends;
    for (const char* key : {"eos", "eot", "eom"})
      if (const auto id = id_of(key); id && std::ranges::find(ends, *id) == ends.end())
        ends.push_back(*id);
    if (const auto id = id_of("bos")) config["bos_token_id"] = *id;
    if (!ends.empty()) config["eos_token_id"] = ends.size() == 1 ? Json(ends[0]) : Json(ends);
    if (const auto id = id_of("padding")) config["pad_token_id"] = *id;
    return config;
  }

 private:
  static constexpr std::pair<const char*, const char*> kNamed[] = {{"bos_token", "bos"},
                                                                   {"eos_token", "eos"},
                                                                   {"unk_token", "unknown"},
                                                                   {"pad_token", "padding"}};
  static constexpr std::int64_t kControl = 3, kUserDefined = 4;

  // The token of bos, eos, unknown or padding. An ordinary token in place of the latter two, such as
  // the first one of all, stays ordinary: a special one is left out of texts.
  std::optional<std::int64_t> named(const std::string& key) const {
    constexpr std::int64_t kNormal = 1;
    const auto id = id_of(key.c_str());
    const auto types = file_.integers("tokenizer.ggml.token_type");
    const bool may_be_ordinary = key == "unknown" || key == "padding";
    if (id && may_be_ordinary && types && (*types)[static_cast<std::size_t>(*id)] == kNormal)
      return std::nullopt;
    return id;
  }

  std::vector<std::string> needed_texts(const char* key) const {
    const auto texts = file_.texts(key);
    CS_REQUIRE(texts, file_.path(), ": ", key, " is missing");
    return *texts;
  }

  [[noreturn]] void refuse(const char* key, std::size_t at, std::string_view text,
                           std::string_view why) const {
    fail(ErrorKind::BadInput,
         str_cat(file_.path(), ": tokenizer.ggml.", key, "[", at, "] '", shortened(text), "' ", why,
                 "; convert from its Hugging Face folder if there is one"));
  }

  // As a tokenizer's reader wants them: "a b", where a, b and ab are tokens.
  std::vector<std::string> merges() const {
    std::vector<std::string> all = needed_texts("tokenizer.ggml.merges");
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t space = all[i].find(' ');
      const std::string left = all[i].substr(0, space);
      const std::string right = space == std::string::npos ? "" : all[i].substr(space + 1);
      if (left.empty() || right.empty() || !ids_.contains(left) || !ids_.contains(right) ||
          !ids_.contains(left + right) || right.find(' ') != std::string::npos)
        refuse("merges", i, all[i], "is not two tokens that together are one");
    }
    return all;
  }

  std::optional<std::int64_t> id_of(const char* name) const {
    const std::string key = str_cat("tokenizer.ggml.", name, "_token_id");
    const auto id = file_.integer(key);
    CS_REQUIRE(!id || (*id >= 0 && *id < std::ssize(tokens_)), file_.path(), ": ", key, " ",
               id.value_or(0), " is none of ", tokens_.size(), " tokens");
    return id;
  }

  Json added_tokens() const {
    const auto types = file_.integers("tokenizer.ggml.token_type");
    CS_REQUIRE(types && types->size() == tokens_.size(), file_.path(),
               ": tokenizer.ggml.token_type does not have one type for each of ", tokens_.size(),
               " tokens");
    std::set<std::int64_t> named;  // these as well, for transformers makes them added tokens
    for (const auto& [name, key] : kNamed)
      if (const auto id = this->named(key)) named.insert(*id);
    Json added = Json::array();
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const std::int64_t type = (*types)[id];
      const bool special = type == kControl || named.contains(static_cast<std::int64_t>(id));
      if (!special && type != kUserDefined) continue;
      if (tokens_[id].empty())
        refuse("tokens", id, tokens_[id], "is empty, which a token found in texts must not be");
      added.push_back({{"id", id},
                       {"content", tokens_[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", special}});
    }
    return added;
  }

  // Puts the ends of a sequence around each text, where the file asks for them.
  Json post_processor() const {
    const bool bos = file_.flag("tokenizer.ggml.add_bos_token").value_or(kind_.adds_bos);
    const bool eos = file_.flag("tokenizer.ggml.add_eos_token").value_or(false);
    if (!bos && !eos) return nullptr;
    Json single = Json::array(), specials = Json::object();
    const auto add = [&](const char* name) {
      const auto id = id_of(name);
      CS_REQUIRE(id, file_.path(), ": tokenizer.ggml.", name, "_token_id is missing");
      const std::string& token = tokens_[static_cast<std::size_t>(*id)];
      single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      specials[token] = {
          {"id", token}, {"ids", Json::array({*id})}, {"tokens", Json::array({token})}};
    };
    if (bos) add("bos");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (eos) add("eos");
    Json pair = single;
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(specials)}};
  }

  const Gguf& file_;
  Kind kind_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::size_t> ids_;
};

}  // namespace

TextFiles tokenizer_files(const Gguf& file, std::int64_t vocab_size, std::int64_t context) {
  const TokenizerOfGguf made(file, vocab_size);
  return {{"generation_config.json", json_text(made.generation_config(), 2) + "\n"},
          {"tokenizer.json", json_text(made.tokenizer(), 1) + "\n"},
          {"tokenizer_config.json", json_text(made.tokenizer_config(context), 2) + "\n"}};
}

}  // namespace coshard::tools
