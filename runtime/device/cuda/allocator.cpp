#include "runtime/device/cuda/allocator.h"

#include <algorithm>
#include <bit>

#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/error.h"

namespace coshard {
namespace {

constexpr std::size_t kAlignment = 512;
constexpr std::size_t kUsers = 5;  // how many an out-of-memory error names

}  // namespace

CudaAllocator::~CudaAllocator() {
  for (const auto& [block, of] : blocks_) log_cuda(cuda().Free(block), "cudaFree");
}

// An eighth of a power of two, so that at most an eighth of a block is unused.
std::size_t CudaAllocator::rounded(std::size_t bytes) {
  const std::size_t units = (bytes + kAlignment - 1) / kAlignment;
  if (units <= 8) return units * kAlignment;
  const int shift = std::bit_width(units - 1) - 4;
  return (((units - 1) >> shift) + 1) << shift << std::bit_width(kAlignment - 1);
}

void* CudaAllocator::take_free(std::size_t bytes) {
  const auto found = free_.find(bytes);
  if (found == free_.end() || found->second.empty()) return nullptr;
  void* block = found->second.back();
  found->second.pop_back();
  stats_.cached -= bytes;
  return block;
}

void CudaAllocator::collect() noexcept {
  std::erase_if(pending_, [this](Pending& waiting) {
    for (const auto& use : waiting.uses) {
      try {
        if (!use->query()) return false;
      } catch (const Error&) {
        return false;  // the device has failed; whoever waits for it says so
      }
    }
    const std::size_t bytes = blocks_.at(waiting.block).bytes;
    free_[bytes].push_back(waiting.block);
    stats_.cached += bytes;
    return true;
  });
}

void* CudaAllocator::take(std::size_t bytes, std::string_view label) {
  if (bytes == 0) return nullptr;
  if (bytes > std::size_t{1} << 50)
    fail(ErrorKind::DeviceFailed,
         cat("cuda:", device_, ": a buffer of ", bytes, " bytes is larger than any memory"));
  const std::size_t size = rounded(bytes);
  lock_.lock();
  if (!pending_.empty()) collect();
  void* block = take_free(size);
  if (block != nullptr) {
    blocks_.at(block).label = label;
    stats_.in_use += size;
    stats_.peak = std::max(stats_.peak, stats_.in_use);
    lock_.unlock();
    return block;
  }
  lock_.unlock();
  if (!succeeded(cuda().Malloc(&block, size))) {
    release_cached();
    const cudaError_t status = cuda().Malloc(&block, size);
    if (!succeeded(status)) {
      std::size_t left = 0, all = 0;
      if (!succeeded(cuda().MemGetInfo(&left, &all))) left = all = 0;
      const MemoryStats held = stats();
      fail(ErrorKind::DeviceFailed,
           cat("cuda:", device_, ": cannot allocate ", bytes, " bytes",
               label.empty() ? "" : " for ", label, ": ", text_of(status), "; ", held.in_use,
               " are in use (", holders(), "), ", held.cached, " cached, peak ", held.peak, "; ",
               left, " of ", all, " are free on the device"));
    }
  }
  lock_.lock();
  blocks_[block] = {size, label};
  stats_.in_use += size;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
  lock_.unlock();
  return block;
}

void CudaAllocator::give(void* block, std::span<const std::shared_ptr<Event>> uses) noexcept {
  if (block == nullptr) return;
  lock_.lock();
  const auto found = blocks_.find(block);
  const std::size_t bytes = found->second.bytes;
  stats_.in_use -= bytes;
  if (uses.empty()) {
    free_[bytes].push_back(block);
    stats_.cached += bytes;
  } else {
    pending_.push_back({block, {uses.begin(), uses.end()}});
  }
  lock_.unlock();
}

void CudaAllocator::release_cached() noexcept {
  // cudaFree waits for the device, so that what is pending is over after the first.
  log_cuda(cuda().DeviceSynchronize(), "cudaDeviceSynchronize");
  lock_.lock();
  collect();
  const auto lists = std::exchange(free_, {});
  stats_.cached = 0;
  for (const auto& [bytes, list] : lists)
    for (void* block : list) blocks_.erase(block);
  lock_.unlock();
  for (const auto& [bytes, list] : lists)
    for (void* block : list) log_cuda(cuda().Free(block), "cudaFree");
}

std::string CudaAllocator::holders() const {
  std::map<std::string_view, std::size_t> sums;
  lock_.lock();
  for (const auto& [block, of] : blocks_) sums[of.label.empty() ? "other" : of.label] += of.bytes;
  for (const auto& [bytes, list] : free_)
    for (void* block : list) {
      const std::string_view label = blocks_.at(block).label;
      sums[label.empty() ? "other" : label] -= bytes;
    }
  lock_.unlock();
  std::vector<std::pair<std::string_view, std::size_t>> largest(sums.begin(), sums.end());
  std::ranges::sort(largest, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(kUsers, largest.size()); ++i)
    if (largest[i].second > 0)
      text += cat(text.empty() ? "" : ", ", largest[i].first, " ", largest[i].second);
  return text.empty() ? "nothing" : text;
}

MemoryStats CudaAllocator::stats() const {
  lock_.lock();
  const MemoryStats copy = stats_;
  lock_.unlock();
  return copy;
}

}  // namespace coshard
