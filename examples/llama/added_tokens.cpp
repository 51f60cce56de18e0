#include "examples/llama/added_tokens.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"
#include "examples/llama/utf8.h"

namespace coshard::llama {
namespace {

AddedToken token_of(JsonObject object) {
  AddedToken token;
  token.content = object.text("content");
  if (token.content.empty()) object.refuse("content", "is empty");
  const Json& id = object.need("id");
  if (!id.is_number_unsigned() || id.get<std::uint64_t>() > Bpe::kLargestId)
    object.refuse("id", str_cat("is not an integer from 0 to ", Bpe::kLargestId));
  token.id = id.get<std::int32_t>();
  token.special = object.flag("special");
  token.single_word = object.flag("single_word");
  token.lstrip = object.flag("lstrip");
  token.rstrip = object.flag("rstrip");
  token.normalized = object.flag("normalized");
  object.finish();
  return token;
}

// The white space that a text ends with, or begins with.
std::size_t spaces_at_end(std::string_view text) {
  std::size_t bytes = 0;
  while (!text.empty()) {
    const Character last = last_character(text);
    if (!is_white_space(last.code)) break;
    text.remove_suffix(last.bytes);
    bytes += last.bytes;
  }
  return bytes;
}

std::size_t spaces_at_start(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const Character next = first_character(text.substr(bytes));
    if (!is_white_space(next.code)) break;
    bytes += next.bytes;
  }
  return bytes;
}

bool is_within_word(std::string_view before, std::string_view after) {
  return (!before.empty() && is_word(last_character(before).code)) ||
         (!after.empty() && is_word(first_character(after).code));
}

}  // namespace

std::vector<AddedToken> added_tokens_of(JsonObject& tokenizer, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  const Json* list = tokenizer.find("added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) tokenizer.refuse("added_tokens", "is not a list");
  std::unordered_set<std::string> contents;
  auto next = static_cast<std::int64_t>(vocabulary.size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string path = tokenizer.path_of(str_cat("added_tokens[", i, "]"));
    AddedToken token = token_of({(*list)[i], tokenizer.file(), path});
    const auto known = vocabulary.find(token.content);
    const std::int64_t id = known == vocabulary.end() ? next : known->second;
    CS_REQUIRE(token.id == id && contents.insert(token.content).second, tokenizer.file(), ": ",
               path, ": '", shortened(token.content), "' has id ", token.id, ", where ", id,
               " is its own or the next free one, or it is there twice");
    next = std::max(next, id + 1);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void TokenFinder::add(AddedToken token) {
  auto& list = by_first_byte_[static_cast<unsigned char>(token.content.front())];
  list.push_back(static_cast<std::uint32_t>(tokens_.size()));
  tokens_.push_back(std::move(token));
  std::ranges::stable_sort(list, std::greater<>(),
                           [&](std::uint32_t i) { return tokens_[i].content.size(); });
}

const AddedToken* TokenFinder::at(std::string_view text) const {
  for (const std::uint32_t i : by_first_byte_[static_cast<unsigned char>(text.front())])
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  return nullptr;
}

void TokenFinder::split(std::string_view all, const TextSink& text, const TokenSink& token) const {
  std::size_t given = 0;  // bytes that are text or token already
  for (std::size_t at_byte = 0; at_byte < all.size() && !tokens_.empty();) {
    const AddedToken* found = at(all.substr(at_byte));
    if (found == nullptr) {
      ++at_byte;
      continue;
    }
    std::size_t begin = at_byte, end = at_byte + found->content.size();
    at_byte = end;
    if (found->single_word && is_within_word(all.substr(0, begin), all.substr(end))) continue;
    if (found->lstrip) begin = std::max(begin - spaces_at_end(all.substr(0, begin)), given);
    if (found->rstrip) end += spaces_at_start(all.substr(end));
    if (begin >= end) continue;  // all of it was white space that the one before it has taken
    if (begin > given) text(all.substr(given, begin - given));
    token(found->id);
    given = end;
  }
  if (given < all.size()) text(all.substr(given));
}

}  // namespace coshard::llama
