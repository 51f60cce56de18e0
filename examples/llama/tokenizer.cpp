#include "examples/llama/tokenizer.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/file.h"
#include "dtensor/checkpoint/strict_json.h"
#include "examples/llama/added_ids.h"
#include "examples/llama/added_tokens.h"
#include "examples/llama/bpe.h"
#include "examples/llama/byte_alphabet.h"
#include "examples/llama/pre_tokenizer.h"
#include "examples/llama/tokenizer_config.h"
#include "examples/llama/utf8.h"

namespace coshard::llama {
namespace {

constexpr std::uint64_t kMostOfJson = 1'000'000'000;  // bytes

// Whether `normalizer` is NFC; else it is null.
bool reads_nfc(JsonObject& tokenizer) {
  if (tokenizer.find("normalizer") == nullptr) return false;
  JsonObject normalizer = tokenizer.object("normalizer");
  const std::string type = normalizer.text("type");
  if (type == "Sequence") {
    const Json& list = normalizer.need("normalizers");
    if (!list.is_array()) normalizer.refuse("normalizers", "is not a list");
    for (const Json& one : list)
      if (one != Json{{"type", "NFC"}}) normalizer.refuse("normalizers", "holds more than NFC");
    normalizer.finish();
    return !list.empty();
  }
  if (type != "NFC") normalizer.refuse("type", "is not NFC, the only normalizer that is supported");
  normalizer.finish();
  return true;
}

void require_byte_decoder(JsonObject& tokenizer) {
  JsonObject decoder = tokenizer.object("decoder");
  if (decoder.text("type") != "ByteLevel")
    decoder.refuse("type", "is not ByteLevel, the only decoder that is supported");
  decoder.skip({"add_prefix_space", "trim_offsets", "use_regex"});  // without effect on decoding
  decoder.finish();
}

}  // namespace

struct Tokenizer::Parts {
  Parts(Bpe model, PreTokenizer cutter) : bpe(std::move(model)), words(std::move(cutter)) {}
  static std::shared_ptr<Parts> of_json(JsonObject& json);
  void add(const AddedToken& token);
  void name(const std::string& token, std::int32_t id, bool special);

  std::mutex turn;  // of what encode() writes to: cache and scratch memory
  Bpe bpe;
  PreTokenizer words;
  bool to_nfc = false;
  AddedIds around;
  std::vector<AddedToken> listed;
  TokenFinder in_text, in_normalized;
  Vocabulary added;
  struct Token {
    std::string bytes;
    bool special = false;
  };
  std::unordered_map<std::int64_t, Token> by_id;
};

std::shared_ptr<Tokenizer::Parts> Tokenizer::Parts::of_json(JsonObject& json) {
  json.skip({"version"});
  for (const char* key : {"padding", "truncation"})
    if (const Json* value = json.find(key); value != nullptr && *value != Json(false))
      json.refuse(key, "is not supported; write null there");
  Bpe model = Bpe::of_json(json.object("model"));
  auto parts = std::make_shared<Parts>(std::move(model), PreTokenizer::of_json(json));
  parts->to_nfc = reads_nfc(json);
  require_byte_decoder(json);
  parts->around = AddedIds::of_json(json);
  for (const auto& [token, id] : parts->bpe.vocabulary()) parts->name(token, id, false);
  parts->listed = added_tokens_of(json, parts->bpe.vocabulary());
  for (const AddedToken& token : parts->listed) parts->add(token);
  json.finish();
  return parts;
}

void Tokenizer::Parts::name(const std::string& token, std::int32_t id, bool special) {
  by_id[id] = {bytes_of_token(token).value_or(token), special};
}

void Tokenizer::Parts::add(const AddedToken& token) {
  AddedToken found = token;
  if (to_nfc && token.normalized) found.content = nfc(token.content);
  name(found.content, token.id, token.special);
  added.emplace(token.content, token.id);
  (token.normalized ? in_normalized : in_text).add(std::move(found));
}

Tokenizer::Tokenizer(std::shared_ptr<Parts> parts) : parts_(std::move(parts)) {}

Tokenizer Tokenizer::open(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  Tokenizer made = of_text(read_text(path, kMostOfJson), path);
  const Parts& parts = *made.parts_;
  check_files_beside(folder, {parts.listed, parts.words.adds_space(), parts.to_nfc});
  return made;
}

Tokenizer Tokenizer::of_text(const std::string& json, const std::string& file) {
  const Json tree = nn::parse_config(json, file);
  JsonObject object(tree, file, "");
  return Tokenizer(Parts::of_json(object));
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool with_special) const {
  CS_REQUIRE(text.size() < std::numeric_limits<std::int32_t>::max(), "a text of ", text.size(),
             " bytes is too long to encode; encode parts of it");
  const std::size_t wrong = invalid_utf8(text);
  CS_REQUIRE(wrong == std::string_view::npos, "a text is not UTF-8 at byte ", wrong,
             "; convert it first, as with iconv");
  const std::scoped_lock lock(parts_->turn);
  Parts& parts = *parts_;
  std::vector<std::int64_t> ids;
  if (with_special) ids = parts.around.before;
  const auto add_token = [&](std::int32_t id) { ids.push_back(id); };
  const WordSink add_word = [&](std::string_view word) { parts.bpe.encode(word, ids); };
  const auto add_text = [&](std::string_view part) { parts.words.each_word(part, add_word); };
  const auto add_part = [&](std::string_view part) {
    if (!parts.to_nfc) return parts.in_normalized.split(part, add_text, add_token);
    parts.in_normalized.split(nfc(part), add_text, add_token);
  };
  parts.in_text.split(text, add_part, add_token);
  if (with_special) ids.insert(ids.end(), parts.around.behind.begin(), parts.around.behind.end());
  return ids;
}

std::string_view Tokenizer::bytes_of(std::int64_t id, bool skip_special) const {
  const auto at = parts_->by_id.find(id);
  if (at == parts_->by_id.end() || (skip_special && at->second.special)) return {};
  return at->second.bytes;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids, bool skip_special) const {
  std::string bytes;
  for (const std::int64_t id : ids) bytes += bytes_of(id, skip_special);
  return valid_utf8(bytes);
}

std::optional<std::int64_t> Tokenizer::id_of(std::string_view token) const {
  const std::string name(token);
  const Vocabulary &added = parts_->added, &vocabulary = parts_->bpe.vocabulary();
  if (const auto at = added.find(name); at != added.end()) return at->second;
  if (const auto at = vocabulary.find(name); at != vocabulary.end()) return at->second;
  return std::nullopt;
}

std::int64_t Tokenizer::size() const {
  const Vocabulary& vocabulary = parts_->bpe.vocabulary();
  const auto beyond = std::ranges::count_if(
      parts_->added, [&](const auto& token) { return !vocabulary.contains(token.first); });
  return std::ssize(vocabulary) + beyond;
}

}  // namespace coshard::llama
