#include "runtime/device/cpu/block_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include <coshard/runtime/error.h>
#include <coshard/runtime/sanitizers.h>

namespace coshard {
namespace {

// Under AddressSanitizer, freed blocks go to its quarantine instead of our lists, so that use after
// free is detected.
constexpr bool kKeepFreed = !COSHARD_ASAN;

constexpr std::size_t kHugePage = std::size_t{2} << 20;  // x86-64 and arm64

void* from_system(std::size_t bytes) {
  if (bytes < kHugePage) return std::aligned_alloc(BlockCache::kAlignment, bytes);
  // Huge pages: fewer faults, and a tenth of the TLB misses when peers stream through the block.
  void* block = nullptr;
  if (posix_memalign(&block, kHugePage, bytes) != 0) return nullptr;
  madvise(block, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return block;
}

}  // namespace

BlockCache::SizeClass BlockCache::size_class(std::size_t bytes) {
  const std::size_t units = (bytes + kAlignment - 1) / kAlignment;
  if (units <= 8) return {static_cast<int>(units) - 1, units * kAlignment};
  const int shift = std::bit_width(units - 1) - 4;  // units - 1 has 4 leading bits left: 8..15
  const std::size_t eighths = ((units - 1) >> shift) + 1;  // 9..16
  return {8 * (shift + 1) + static_cast<int>(eighths) - 9, (eighths << shift) * kAlignment};
}

void* BlockCache::take(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes > std::size_t{1} << 50) {
    fail(ErrorKind::DeviceFailed,
         str_cat("cpu: cannot allocate ", bytes, " bytes: larger than the address space"));
  }
  const SizeClass wanted = size_class(bytes);
  const auto index = static_cast<std::size_t>(wanted.index);
  lock_.lock();
  Free* block = free_[index];
  if (block != nullptr) {
    free_[index] = block->next;
    stats_.cached -= wanted.bytes;
  }
  if (block != nullptr) count_taken(wanted.bytes);
  lock_.unlock();
  if (block != nullptr) return block;

  void* fresh = from_system(wanted.bytes);
  if (fresh == nullptr) {
    release_cached();
    fresh = from_system(wanted.bytes);
  }
  lock_.lock();
  if (fresh != nullptr) count_taken(wanted.bytes);
  const MemoryStats held = stats_;
  lock_.unlock();
  if (fresh == nullptr) {
    fail(ErrorKind::DeviceFailed,
         str_cat("cpu: cannot allocate ", bytes, " bytes; ", held.in_use, " are in use, ",
                 held.cached, " cached, peak ", held.peak));
  }
  return fresh;
}

void BlockCache::give(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const SizeClass of = size_class(bytes);
  lock_.lock();
  stats_.in_use -= of.bytes;
  const bool keep = kKeepFreed && stats_.cached + of.bytes <= kCacheLimit;
  if (keep) {
    auto* node = static_cast<Free*>(block);
    node->next = free_[static_cast<std::size_t>(of.index)];
    free_[static_cast<std::size_t>(of.index)] = node;
    stats_.cached += of.bytes;
  }
  lock_.unlock();
  if (!keep) std::free(block);
}

void BlockCache::release_cached() noexcept {
  lock_.lock();
  const auto lists = free_;
  free_.fill(nullptr);
  stats_.cached = 0;
  lock_.unlock();
  for (Free* block : lists) {
    while (block != nullptr) std::free(std::exchange(block, block->next));
  }
}

MemoryStats BlockCache::stats() const {
  lock_.lock();
  const MemoryStats copy = stats_;
  lock_.unlock();
  return copy;
}

}  // namespace coshard
