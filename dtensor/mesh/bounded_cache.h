#pragma once
// A rank's caches, which share one budget of bytes: when it is exceeded, the least recently used
// entries are dropped, which only costs time. Entries in use are held by shared_ptr, or by
// CachesHeld. Rank's thread.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

// Adds a value to a hash.
constexpr void mix_in(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL, hash ^= hash >> 29;
}

struct CacheSize {
  std::string_view name;
  std::size_t entries = 0, bytes = 0;
};
// This rank's caches that have ever held an entry. kCacheBytes: the default of their shared limit.
std::vector<CacheSize> cache_sizes();
constexpr std::size_t kCacheBytes = std::size_t{2} << 20;
void set_cache_limit(std::size_t bytes);  // of this rank

class AnyCache {
 public:
  virtual ~AnyCache() = default;

 protected:
  friend class CacheBudget;
  struct Use {
    // When it was last used, as the number of entries added to all caches by then.
    std::uint64_t last;
    std::size_t bytes;
  };
  virtual CacheSize size() const = 0;
  virtual void list(std::vector<Use>& uses) const = 0;
  // Drops entries last used at `last` or before; returns the bytes freed.
  virtual std::size_t forget(std::uint64_t last) = 0;
  // Drops entries that belong to one of these meshes.
  virtual std::size_t forget(std::span<const void* const> meshes) = 0;
};

// The budget of this rank.
class CacheBudget {
 public:
  static inline CacheBudget& of_rank();
  const std::uint64_t& clock() const { return clock_; }
  void add(AnyCache& cache, std::size_t bytes);
  void forget(std::span<const void* const> meshes);
  void set_limit(std::size_t bytes);
  std::vector<CacheSize> sizes() const;

  // Nothing is dropped until the last release().
  void hold() { ++held_; }
  void release() {
    if (--held_ == 0 && bytes_ > shrink_at_) shrink();
  }

 private:
  void shrink();
  std::vector<AnyCache*> caches_;  // they live as long as the rank
  std::uint64_t clock_ = 0;
  int held_ = 0;
  std::size_t bytes_ = 0, limit_ = kCacheBytes, shrink_at_ = kCacheBytes;
};

inline const RankLocal<CacheBudget> cache_budget;
CacheBudget& CacheBudget::of_rank() { return *cache_budget; }

// While one is alive, nothing is dropped from this rank's caches; cheaper than a shared_ptr. Not to
// be held while user code runs.
class CachesHeld {
 public:
  CachesHeld() : budget_(CacheBudget::of_rank()) { budget_.hold(); }
  ~CachesHeld() { budget_.release(); }
  CachesHeld(const CachesHeld&) = delete;
  CachesHeld& operator=(const CachesHeld&) = delete;

 private:
  CacheBudget& budget_;
};

// `Kind` has kName; bytes_of(value), its memory beyond sizeof; lies_on(value, mesh), where `mesh`
// is an id; kKeepsUsed: whether entries with other owners are kept. Create it as a RankLocal.
template <class Value, class Kind>
class BoundedCache final : public AnyCache {
 public:
  using Kept = std::shared_ptr<const Value>;

  // Null if not cached. The pointer is valid until something is added to any cache of the rank.
  template <class Matches>
  const Kept* find(std::uint64_t hash, const Matches& matches) {
    if (heads_.empty()) return nullptr;
    for (Entry* entry = head(hash).get(); entry != nullptr; entry = entry->next.get()) {
      if (entry->hash != hash || !matches(*entry->value)) continue;
      entry->last = *clock_;
      return &entry->value;
    }
    return nullptr;
  }

  // Returns by value, since the entry may be dropped at once.
  Kept add(std::uint64_t hash, Kept value) {
    CacheBudget& budget = CacheBudget::of_rank();
    clock_ = &budget.clock();
    if (entries_ >= heads_.size()) grow();
    const std::size_t bytes = kOverhead + sizeof(Value) + Kind::bytes_of(*value);
    auto& head = this->head(hash);
    head = std::unique_ptr<Entry>(new Entry{std::move(head), hash, *clock_ + 1, bytes, value});
    ++entries_;
    bytes_ += bytes;
    budget.add(*this, bytes);
    return value;
  }

  // Calls `see(kept)` for every entry.
  template <class See>
  void each(const See& see) const {
    for (const auto& head : heads_)
      for (const Entry* entry = head.get(); entry != nullptr; entry = entry->next.get())
        see(entry->value);
  }

 private:
  struct Entry {
    std::unique_ptr<Entry> next;
    std::uint64_t hash, last;
    std::size_t bytes;
    Kept value;
  };

  // Per entry: the entry, its slot, and the overhead of allocations and shared_ptr.
  static constexpr std::size_t kOverhead = sizeof(Entry) + 64;

  std::unique_ptr<Entry>& head(std::uint64_t hash) { return heads_[hash & (heads_.size() - 1)]; }

  void grow() {
    std::vector<std::unique_ptr<Entry>> old(heads_.empty() ? 64 : 2 * heads_.size());
    old.swap(heads_);
    for (auto& chain : old)
      while (chain) {
        std::unique_ptr<Entry> entry = std::move(chain);
        chain = std::move(entry->next);
        auto& head = this->head(entry->hash);
        entry->next = std::move(head);
        head = std::move(entry);
      }
  }

  template <class Gone>
  std::size_t forget_if(const Gone& gone) {
    const std::size_t before = bytes_;
    for (auto& head : heads_) {
      for (std::unique_ptr<Entry>* at = &head; *at;) {
        if (!gone(**at) || (Kind::kKeepsUsed && (*at)->value.use_count() > 1)) {
          at = &(*at)->next;
          continue;
        }
        --entries_;
        bytes_ -= (*at)->bytes;
        *at = std::move((*at)->next);
      }
    }
    return before - bytes_;
  }

  CacheSize size() const override { return {Kind::kName, entries_, bytes_}; }
  void list(std::vector<Use>& uses) const override {
    for (const auto& head : heads_)
      for (const Entry* entry = head.get(); entry != nullptr; entry = entry->next.get())
        uses.push_back({entry->last, entry->bytes});
  }
  std::size_t forget(std::uint64_t last) override {
    return forget_if([last](const Entry& entry) { return entry.last <= last; });
  }
  std::size_t forget(std::span<const void* const> meshes) override {
    return forget_if([meshes](const Entry& entry) {
      for (const void* mesh : meshes)
        if (Kind::lies_on(*entry.value, mesh)) return true;
      return false;
    });
  }

  std::vector<std::unique_ptr<Entry>> heads_;  // a power of two
  std::size_t entries_ = 0, bytes_ = 0;
  const std::uint64_t* clock_ = nullptr;  // set with the first entry
};

}  // namespace coshard
