#pragma once
// Byte-level byte pair encoding of single words: `model` of tokenizer.json. One thread at a time.
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "examples/llama/json_object.h"
#include "examples/llama/pair_table.h"

namespace coshard::llama {

using Vocabulary =
    std::unordered_map<std::string, std::int32_t>;  // ids by token, as spelled in files

class Bpe {
 public:
  // Error{BadInput}: another kind than BPE, or what changes its result: dropout, byte_fallback, prefixes and suffixes;
  // ids that are negative, there twice or larger than kLargestId; merges of tokens that are not in the vocabulary.
  static Bpe of_json(JsonObject model);
  static constexpr std::int32_t kLargestId = std::numeric_limits<std::int32_t>::max();

  const Vocabulary& vocabulary() const { return vocabulary_; }
  // Appends the ids of a word. A byte without a token becomes unk_token, or nothing if there is none,
  // as in `tokenizers`.
  void encode(std::string_view word, std::vector<std::int64_t>& ids);

 private:
  struct Symbol {
    std::int32_t id;  // kGone: merged into the one before it
    std::int32_t last, next;
  };
  struct Candidate {
    std::int32_t rank, at, id;
    friend bool operator>(const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    }
  };
  // A word and its ids, one cache line.
  static constexpr std::size_t kWordBytes = 30, kWordIds = 8, kCached = 1 << 16;
  struct alignas(64) Cached {
    std::uint8_t bytes = 0, count = 0;
    std::array<char, kWordBytes> word;
    std::array<std::int32_t, kWordIds> ids;
  };

  void read_vocabulary(JsonObject& model);
  void read_merges(JsonObject& model);
  void begin(std::string_view word);
  void propose(std::int32_t at);
  void merge();

  Vocabulary vocabulary_;
  std::unordered_map<std::string, std::int32_t> by_bytes_;  // with ignore_merges
  std::array<std::int32_t, 256> id_of_byte_{};
  std::int32_t unknown_ = kGone;
  static constexpr std::int32_t kGone = -1;
  bool fuse_unknown_ = false;
  PairTable merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;  // a heap, the first to be merged on top
  std::vector<Cached> cache_;          // by hash; a word takes the place of another
};

}  // namespace coshard::llama
