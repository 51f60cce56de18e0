#include "runtime/device/cuda/allocator.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/stream.h"

namespace coshard {
namespace {

constexpr std::size_t kUsers = 5;  // number of labels that an out-of-memory error names

cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

bool over(const Event& event) noexcept {
  try {
    return event.query();
  } catch (const Error&) {
    return false;  // the device has failed; the next wait reports it
  }
}

}  // namespace

CudaAllocator::CudaAllocator(int device, CudaStream& compute) : device_(device), compute_(compute) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  check_cuda(cuda().MemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
  // Freed memory stays cached when the host synchronizes.
  std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  check_cuda(cuda().MemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all),
             "cudaMemPoolSetAttribute");
}

// All work is complete. Blocks still in use keep the pool alive (cuda.h, cudaMemPoolDestroy).
CudaAllocator::~CudaAllocator() {
  for (const auto& [stream, queue] : pending_)
    for (const Pending& waiting : queue) free(waiting.block);
  log_cuda(cuda().MemPoolDestroy(pool_), "cudaMemPoolDestroy");
}

void CudaAllocator::note(void* block, std::size_t bytes, std::string_view label) {
  if (spare_.empty()) {
    blocks_.emplace(block, Block{bytes, label});
  } else {
    spare_.back().key() = block;
    spare_.back().mapped() = {bytes, label};
    blocks_.insert(std::move(spare_.back()));
    spare_.pop_back();
  }
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
}

void* CudaAllocator::take(std::size_t bytes, std::string_view label) {
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (!pending_.empty()) collect();
  void* block = nullptr;
  const cudaError_t status = cuda().MallocFromPoolAsync(&block, bytes, pool_, native(compute_));
  if (!succeeded(status)) [[unlikely]] {
    if (status == cudaErrorMemoryAllocation) return nullptr;
    check_cuda(status, "cudaMallocFromPoolAsync of ", bytes, " bytes");
  }
  note(block, bytes, label);
  return block;
}

void CudaAllocator::give(void* block, std::span<const std::shared_ptr<Event>> uses) noexcept {
  if (block == nullptr) return;
  const auto followed = [this](const auto& use) { return compute_.follows(*use); };
  const std::scoped_lock lock(mutex_);
  spare_.push_back(blocks_.extract(block));
  in_use_ -= spare_.back().mapped().bytes;
  if (std::ranges::all_of(uses, followed)) return free(block);
  wait_for({block, {uses.begin(), uses.end()}});
}

void CudaAllocator::wait_for(Pending freed) {
  if (freed.uses.empty()) return free(freed.block);
  pending_[freed.uses.back()->stream()].push_back(std::move(freed));
}

void CudaAllocator::collect() noexcept {
  const auto done = [this](const Event& use) { return compute_.follows(use) || over(use); };
  for (auto& [stream, queue] : pending_)
    while (!queue.empty() && done(*queue.front().uses.back())) {
      Pending front = std::move(queue.front());
      queue.pop_front();
      front.uses.pop_back();
      wait_for(std::move(front));
    }
}

// May run on a peer's or a user's thread, whose current device is restored.
void CudaAllocator::free(void* block) noexcept {
  int current = device_;
  log_cuda(cuda().GetDevice(&current), "cudaGetDevice");
  if (current != device_) log_cuda(cuda().SetDevice(device_), "cudaSetDevice");
  log_cuda(cuda().FreeAsync(block, native(compute_)), "cudaFreeAsync");
  if (current != device_) log_cuda(cuda().SetDevice(current), "cudaSetDevice");
}

void CudaAllocator::settle() {
  const std::scoped_lock lock(mutex_);
  for (auto& [stream, queue] : pending_)
    for (; !queue.empty(); queue.pop_front()) {
      for (const auto& use : queue.front().uses) compute_.wait(*use);
      free(queue.front().block);
    }
}

void CudaAllocator::trim() { check_cuda(cuda().MemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo"); }

void CudaAllocator::allow_access(int device) {
  if (device == device_) return;
  cudaMemAccessDesc access{};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = device;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  check_cuda(cuda().MemPoolSetAccess(pool_, &access, 1), "cuda:", device_,
             ": access from cuda:", device, ": cudaMemPoolSetAccess");
}

void CudaAllocator::fail_request(std::size_t bytes, std::string_view label,
                                 std::size_t of_graphs) const {
  std::size_t left = 0, all = 0;
  if (!succeeded(cuda().MemGetInfo(&left, &all))) left = all = 0;
  const MemoryStats held = stats();
  fail(ErrorKind::DeviceFailed,
       str_cat("cuda:", device_, ": cannot allocate ", bytes, " bytes",
               label.empty() ? "" : " for ", label, ": ", text_of(cudaErrorMemoryAllocation), "; ",
               held.in_use, " are in use (", holders(), "), ",
               of_graphs > 0 ? str_cat(of_graphs, " by captured steps, ") : "", held.cached,
               " cached, peak ", held.peak, "; ", left, " of ", all, " are free on the device"));
}

std::string CudaAllocator::holders() const {
  std::map<std::string_view, std::size_t> sums;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [block, of] : blocks_) sums[of.label.empty() ? "other" : of.label] += of.bytes;
  }
  std::vector<std::pair<std::string_view, std::size_t>> largest(sums.begin(), sums.end());
  std::ranges::sort(largest, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(kUsers, largest.size()); ++i)
    text += str_cat(text.empty() ? "" : ", ", largest[i].first, " ", largest[i].second);
  return text.empty() ? "nothing" : text;
}

std::size_t CudaAllocator::attribute(cudaMemPoolAttr which) const {
  std::uint64_t value = 0;
  return succeeded(cuda().MemPoolGetAttribute(pool_, which, &value)) ? value : 0;
}

MemoryStats CudaAllocator::stats() const {
  const std::scoped_lock lock(mutex_);
  const std::size_t used = attribute(cudaMemPoolAttrUsedMemCurrent);
  const std::size_t reserved = attribute(cudaMemPoolAttrReservedMemCurrent);
  return {in_use_, reserved - std::min(reserved, used), peak_};
}

}  // namespace coshard
