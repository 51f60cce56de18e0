#pragma once
// What pairs of tokens merge to. Any thread while it is not written.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace coshard::llama {

struct Merge {
  std::int32_t rank, id;  // the lowest rank is merged first
};

// An open hash table; keys are never removed.
class PairTable {
 public:
  void reserve(std::size_t pairs) {
    slots_.assign(std::bit_ceil(2 * pairs + 2), {});
    shift_ = 64 - std::countr_zero(slots_.size());
  }
  // A later merge of the same pair replaces the first. Precondition: fewer pairs than were reserved.
  void put(std::int32_t left, std::int32_t right, Merge merge) {
    Slot& slot = slots_[place(left, right)];
    slot = {key(left, right), merge};
  }
  // Null: they do not merge.
  const Merge* find(std::int32_t left, std::int32_t right) const {
    const Slot& slot = slots_[place(left, right)];
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge = {0, 0};
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t place(std::int32_t left, std::int32_t right) const {
    constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
    const std::uint64_t wanted = key(left, right);
    std::size_t at = (wanted ^ wanted >> 29) * kMix >> shift_;
    while (slots_[at].key != wanted && slots_[at].key != kFree) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;
};

}  // namespace coshard::llama
