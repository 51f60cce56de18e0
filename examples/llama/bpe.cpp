#include "examples/llama/bpe.h"

#define XXH_INLINE_ALL
#include <xxhash.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_set>
#include <utility>

#include <coshard/runtime/error.h>
#include "dtensor/checkpoint/strict_json.h"
#include "examples/llama/byte_alphabet.h"

namespace coshard::llama {
namespace {

// "a b", or ["a", "b"].
std::pair<std::string, std::string> parts_of(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (!merge.is_string()) return {};
  const auto& text = merge.get_ref<const std::string&>();
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return {};
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

Bpe Bpe::of_json(JsonObject model) {
  if (model.text("type", "BPE") != "BPE")
    model.refuse("type", "is not BPE; only byte-level BPE is supported");
  model.refuse_any({"byte_fallback", "continuing_subword_prefix", "dropout", "end_of_word_suffix"});
  Bpe made;
  made.read_vocabulary(model);
  made.read_merges(model);
  made.fuse_unknown_ = model.flag("fuse_unk", false);
  if (const std::string unknown = model.text("unk_token", ""); !unknown.empty()) {
    const auto at = made.vocabulary_.find(unknown);
    if (at == made.vocabulary_.end()) model.refuse("unk_token", "is not in the vocabulary");
    made.unknown_ = at->second;
  }
  if (model.flag("ignore_merges", false))
    for (const auto& [token, id] : made.vocabulary_)
      if (auto bytes = bytes_of_token(token)) made.by_bytes_.emplace(std::move(*bytes), id);
  model.finish();
  made.cache_.resize(kCached);
  return made;
}

void Bpe::read_vocabulary(JsonObject& model) {
  const Json& vocabulary = model.need("vocab");
  if (!vocabulary.is_object()) model.refuse("vocab", "is not an object of ids by token");
  std::unordered_set<std::int32_t> taken;
  vocabulary_.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) {
    const bool valid = id.is_number_unsigned() && id.get<std::uint64_t>() <= kLargestId;
    CS_REQUIRE(valid, model.file(), ": ", model.path_of("vocab"), ": id ", shortened(id.dump()),
               " of '", shortened(token), "' is not an integer from 0 to ", kLargestId);
    const auto number = id.get<std::int32_t>();
    CS_REQUIRE(taken.insert(number).second, model.file(), ": ", model.path_of("vocab"), ": id ",
               number, " of '", shortened(token), "' is another token's as well");
    vocabulary_.emplace(token, number);
  }
  for (std::size_t byte = 0; byte < id_of_byte_.size(); ++byte) {
    const auto at = vocabulary_.find(byte_alphabet()[byte]);
    id_of_byte_[byte] = at == vocabulary_.end() ? kGone : at->second;
  }
}

void Bpe::read_merges(JsonObject& model) {
  const Json& merges = model.need("merges");
  if (!merges.is_array()) model.refuse("merges", "is not a list");
  merges_.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = parts_of(merges[rank]);
    const auto a = vocabulary_.find(left), b = vocabulary_.find(right),
               whole = vocabulary_.find(left + right), none = vocabulary_.end();
    CS_REQUIRE(!left.empty() && !right.empty() && a != none && b != none && whole != none,
               model.file(), ": ", model.path_of("merges"), "[", rank, "] ",
               shortened(merges[rank].dump()),
               " is not two tokens of the vocabulary that together are one");
    merges_.put(a->second, b->second, {static_cast<std::int32_t>(rank), whole->second});
  }
}

void Bpe::encode(std::string_view word, std::vector<std::int64_t>& ids) {
  Cached* cached = nullptr;
  if (word.size() <= kWordBytes) {
    cached = &cache_[XXH3_64bits(word.data(), word.size()) % kCached];
    if (cached->bytes == word.size() &&
        std::memcmp(cached->word.data(), word.data(), word.size()) == 0) {
      ids.insert(ids.end(), cached->ids.begin(), cached->ids.begin() + cached->count);
      return;
    }
  }
  const std::size_t first = ids.size();
  const auto whole = by_bytes_.empty() ? by_bytes_.end() : by_bytes_.find(std::string(word));
  if (whole != by_bytes_.end()) {
    ids.push_back(whole->second);
  } else {
    begin(word);
    merge();
    for (const Symbol& symbol : symbols_)
      if (symbol.id != kGone) ids.push_back(symbol.id);
  }
  const std::size_t count = ids.size() - first;
  if (cached == nullptr || count > kWordIds) return;
  cached->bytes = static_cast<std::uint8_t>(word.size());
  cached->count = static_cast<std::uint8_t>(count);
  std::ranges::copy(word, cached->word.begin());
  for (std::size_t i = 0; i < count; ++i)
    cached->ids[i] = static_cast<std::int32_t>(ids[first + i]);
}

// One symbol for each byte, and the merges of neighbours.
void Bpe::begin(std::string_view word) {
  symbols_.clear();
  bool last_is_unknown = false;
  for (const char c : word) {
    std::int32_t id = id_of_byte_[static_cast<unsigned char>(c)];
    const bool is_unknown = id == kGone;
    if (is_unknown) {
      if (unknown_ == kGone || (last_is_unknown && fuse_unknown_)) continue;
      id = unknown_;
    }
    last_is_unknown = is_unknown;
    const auto at = static_cast<std::int32_t>(symbols_.size());
    symbols_.push_back({id, at - 1, at + 1});
  }
  if (!symbols_.empty()) symbols_.back().next = kGone;
  candidates_.clear();
  for (std::size_t i = 0; i + 1 < symbols_.size(); ++i) propose(static_cast<std::int32_t>(i));
}

// The merge of the symbol at `at` and the next one, if there is one.
void Bpe::propose(std::int32_t at) {
  const Symbol& left = symbols_[static_cast<std::size_t>(at)];
  if (left.next == kGone) return;
  const Merge* found = merges_.find(left.id, symbols_[static_cast<std::size_t>(left.next)].id);
  if (found == nullptr) return;
  candidates_.push_back({found->rank, at, found->id});
  std::ranges::push_heap(candidates_, std::greater<>());
}

void Bpe::merge() {
  while (!candidates_.empty()) {
    std::ranges::pop_heap(candidates_, std::greater<>());
    const Candidate best = candidates_.back();
    candidates_.pop_back();
    Symbol& left = symbols_[static_cast<std::size_t>(best.at)];
    if (left.id == kGone || left.next == kGone) continue;
    Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
    // One of the two may have merged with another since.
    const Merge* now = merges_.find(left.id, right.id);
    if (now == nullptr || now->id != best.id) continue;
    left.id = best.id;
    left.next = right.next;
    right.id = kGone;
    if (left.next != kGone) symbols_[static_cast<std::size_t>(left.next)].last = best.at;
    if (left.last != kGone) propose(left.last);
    propose(best.at);
  }
}

}  // namespace coshard::llama
