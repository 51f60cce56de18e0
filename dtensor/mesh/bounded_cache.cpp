#include "dtensor/mesh/bounded_cache.h"

#include <algorithm>

namespace coshard {

void CacheBudget::add(AnyCache& cache, std::size_t bytes) {
  if (std::ranges::find(caches_, &cache) == caches_.end()) caches_.push_back(&cache);
  ++clock_;
  bytes_ += bytes;
  if (bytes_ > shrink_at_ && held_ == 0) shrink();
}

// Down to three quarters of the limit, so that this is rare.
void CacheBudget::shrink() {
  std::vector<AnyCache::Use> uses;
  for (const AnyCache* cache : caches_) cache->list(uses);
  std::ranges::sort(uses, {}, [](const AnyCache::Use& use) { return use.last; });
  std::size_t left = bytes_;
  std::uint64_t last = 0;
  for (const AnyCache::Use& use : uses) {
    if (left <= limit_ / 4 * 3 || use.last == clock_) break;  // never the entry being added
    left -= use.bytes;
    last = use.last;
  }
  // Twice: an entry dropped from one cache may have kept another cache's entry in use.
  for (int pass = 0; pass < 2; ++pass)
    for (AnyCache* cache : caches_) bytes_ -= cache->forget(last);
  shrink_at_ = std::max(limit_, bytes_ + limit_ / 4);
}

void CacheBudget::forget(std::span<const void* const> meshes) {
  if (held_ > 0) return;
  for (int pass = 0; pass < 2; ++pass)
    for (AnyCache* cache : caches_) bytes_ -= cache->forget(meshes);
}

void CacheBudget::set_limit(std::size_t bytes) {
  limit_ = shrink_at_ = bytes;
  if (bytes_ > limit_ && held_ == 0) shrink();
}

std::vector<CacheSize> CacheBudget::sizes() const {
  std::vector<CacheSize> sizes;
  for (const AnyCache* cache : caches_) sizes.push_back(cache->size());
  return sizes;
}

std::vector<CacheSize> cache_sizes() { return CacheBudget::of_rank().sizes(); }
void set_cache_limit(std::size_t bytes) { CacheBudget::of_rank().set_limit(bytes); }

}  // namespace coshard
