#include "tests/support/fake_cuda/fake_pools.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <set>
#include <utility>

#include "tests/support/fake_cuda/fake_calls.h"

namespace coshard::testing {
namespace {

using namespace fake_calls;

using OpRef = FakeDriver::OpRef;
using Stream = FakeDriver::Stream;

constexpr std::size_t kUnit = 512;      // sizes of a pool's allocations
constexpr std::size_t kGranule = 4096;  // unit of backing; 2 MiB on a real device
constexpr std::size_t kRange = std::size_t{32} << 30;
constexpr std::size_t kMapped = kRange + (std::size_t{4} << 30);
constexpr std::uintptr_t kLowerHalf = 0x90000000;

constexpr std::size_t units(std::size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// The unfinished work that `stream` comes after: the newest op of each stream.
class Reach {
 public:
  explicit Reach(const Stream& stream) : own_(&stream) { add(stream, stream.next - 1); }
  bool covers(const FakeDriver::Op& op) const {
    if (op.done || op.stream == own_) return true;
    const auto found = newest_.find(op.stream);
    return found != newest_.end() && found->second >= op.number;
  }

 private:
  void add(const Stream& stream, std::uint64_t number) {
    std::uint64_t& newest = newest_[&stream];
    if (newest >= number) return;
    const std::uint64_t from = std::exchange(newest, number);
    for (const OpRef& op : stream.queue)
      if (op->number > from && op->number <= number)
        for (const OpRef& before : op->after)
          if (!before->done) add(*before->stream, before->number);
  }

  const Stream* own_;
  std::map<const Stream*, std::uint64_t> newest_;
};

class Pool {
 public:
  explicit Pool(int device) : device(device) {
    mapped_ = mmap(nullptr, kMapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) return;
    // The lower half of its addresses is not a small integer or positive float: next to padding
    // that holds the upper half of a pointer, those would look like addresses.
    const auto at = reinterpret_cast<std::uintptr_t>(mapped_);
    base_ = static_cast<char*>(mapped_) + ((kLowerHalf - at) & 0xffffffff);
    driver().note_range(base_, kRange, device);
  }
  ~Pool() {
    trim(0);
    if (base_ == nullptr) return;
    driver().forget_range(base_);
    munmap(mapped_, kMapped);
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  char* take(std::size_t bytes, Stream& stream) {
    if (base_ == nullptr || bytes > kRange) return nullptr;
    const Reach reach(stream);
    const auto in_order = [&](const Piece& piece) { return reach.covers(*piece.freed); };
    if (char* data = carve(units(bytes), in_order, stream)) return data;
    return carve(
        units(bytes), [](const Piece&) { return true; }, stream);
  }
  bool give(char* data, Stream& stream) {
    const auto found = pieces_.find(data);
    if (found == pieces_.end() || !found->second.used) return false;
    const std::size_t bytes = found->second.bytes;
    found->second.used = false;
    used -= bytes;
    found->second.freed = driver().enqueue(stream, [data, bytes] {
      driver().writes("cudaFreeAsync", data, bytes);
      std::memset(data, 0xff, bytes);
    });
    return true;
  }
  void trim(std::size_t keep) {
    for (std::size_t g = 0; g < backed_.size() && reserved > keep; ++g) {
      if (!backed_[g] || !is_free(g)) continue;
      backed_[g] = false;
      reserved -= kGranule;
      driver().unreserve(kGranule);
    }
  }
  bool contains(const void* data) const {
    const auto* at = static_cast<const char*>(data);
    return at >= base_ && at < base_ + kRange;
  }
  bool gave(const void* data) const {
    auto after = pieces_.upper_bound(static_cast<char*>(const_cast<void*>(data)));
    if (after == pieces_.begin()) return false;
    --after;
    return after->second.used && data < after->first + after->second.bytes;
  }
  // Whether no work is left that uses it.
  bool over() const {
    return std::ranges::all_of(pieces_, [](const auto& p) { return free_for_all(p.second); });
  }

  const int device;
  std::size_t used = 0, reserved = 0;
  std::set<int> access;  // devices
  bool destroyed = false;

 private:
  struct Piece {
    std::size_t bytes = 0;
    bool used = false;
    OpRef freed;  // null: never used
  };
  static bool free_for_all(const Piece& piece) {
    return !piece.used && (piece.freed == nullptr || piece.freed->done);
  }

  // The first run of pieces that are free, usable, and backed or can be; else past the top.
  template <class Usable>
  char* carve(std::size_t bytes, const Usable& usable, Stream& stream) {
    std::size_t begin = 0, end = 0;
    for (const auto& [at, piece] : pieces_) {
      const bool fits = !piece.used && (free_for_all(piece) || usable(piece));
      end = static_cast<std::size_t>(at - base_) + piece.bytes;
      if (!fits) begin = end;
      if (end - begin >= bytes && back(begin, bytes)) return use(begin, bytes, stream);
    }
    if (begin + bytes > kRange || !back(begin, bytes)) return nullptr;
    return use(begin, bytes, stream);
  }
  bool back(std::size_t begin, std::size_t bytes) {
    const std::size_t first = begin / kGranule, last = (begin + bytes + kGranule - 1) / kGranule;
    if (backed_.size() < last) backed_.resize(last);
    const auto wanted = static_cast<std::size_t>(
        std::count(backed_.begin() + static_cast<std::ptrdiff_t>(first),
                   backed_.begin() + static_cast<std::ptrdiff_t>(last), false));
    if (!driver().reserve(wanted * kGranule)) return false;
    for (std::size_t g = first; g < last; ++g)
      if (!backed_[g]) std::memset(base_ + g * kGranule, 0xff, kGranule);
    std::fill(backed_.begin() + static_cast<std::ptrdiff_t>(first),
              backed_.begin() + static_cast<std::ptrdiff_t>(last), true);
    reserved += wanted * kGranule;
    return true;
  }
  char* use(std::size_t begin, std::size_t bytes, Stream& stream) {
    FakeDriver::Op wait;
    char* data = base_ + begin;
    for (auto at = pieces_.find(data); at != pieces_.end() && at->first < data + bytes;) {
      const std::size_t over_by =
          at->first + at->second.bytes - std::min(at->first + at->second.bytes, data + bytes);
      if (at->second.freed != nullptr && !at->second.freed->done &&
          at->second.freed->stream != &stream)
        wait.after.push_back(at->second.freed);
      if (over_by > 0) pieces_[data + bytes] = {over_by, false, at->second.freed};
      at = pieces_.erase(at);
    }
    if (!wait.after.empty()) driver().enqueue(stream, std::move(wait));
    pieces_[data] = {bytes, true, nullptr};
    driver().renew(data, bytes);
    top_ = std::max(top_, begin + bytes);
    used += bytes;
    return data;
  }
  bool is_free(std::size_t granule) const {
    const char* begin = base_ + granule * kGranule;
    auto at = pieces_.upper_bound(const_cast<char*>(begin));
    if (at != pieces_.begin()) --at;
    for (; at != pieces_.end() && at->first < begin + kGranule; ++at)
      if (at->first + at->second.bytes > begin && !free_for_all(at->second)) return false;
    return true;
  }

  void* mapped_ = MAP_FAILED;
  char* base_ = nullptr;
  std::size_t top_ = 0;            // end of the pieces, which have no gaps
  std::map<char*, Piece> pieces_;  // by address
  std::vector<bool> backed_;       // by granule
};

std::list<Pool>& pools() {
  static auto* all = new std::list<Pool>();  // never destroyed: it is used at exit
  return *all;
}

Pool* pool_of(const void* data) {
  const auto found = std::ranges::find_if(pools(), [&](const Pool& p) { return p.contains(data); });
  return found == pools().end() ? nullptr : &*found;
}

Pool& pool_at(cudaMemPool_t handle) { return *reinterpret_cast<Pool*>(handle); }

cudaError_t pool_create(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  ENTER("MemPoolCreate");
  if (properties->allocType != cudaMemAllocationTypePinned ||
      properties->location.type != cudaMemLocationTypeDevice)
    return status(cudaErrorInvalidValue);
  const auto held = driver().lock();
  pools().remove_if([](const Pool& p) { return p.destroyed && p.over(); });
  *pool = reinterpret_cast<cudaMemPool_t>(&pools().emplace_back(properties->location.id));
  return cudaSuccess;
}

cudaError_t pool_destroy(cudaMemPool_t handle) {
  ENTER("MemPoolDestroy");
  const auto held = driver().lock();
  Pool& pool = pool_at(handle);
  if (pool.used > 0)
    driver().complain("a pool ends while " + std::to_string(pool.used) + " bytes are in use");
  pool.destroyed = true;
  pool.trim(0);
  return cudaSuccess;
}

cudaError_t pool_set(cudaMemPool_t, cudaMemPoolAttr which, void*) {
  ENTER("MemPoolSetAttribute");
  return status(which == cudaMemPoolAttrReleaseThreshold ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t pool_get(cudaMemPool_t handle, cudaMemPoolAttr which, void* value) {
  ENTER("MemPoolGetAttribute");
  const auto held = driver().lock();
  const Pool& pool = pool_at(handle);
  const bool used = which == cudaMemPoolAttrUsedMemCurrent;
  if (!used && which != cudaMemPoolAttrReservedMemCurrent) return status(cudaErrorInvalidValue);
  *static_cast<std::uint64_t*>(value) = used ? pool.used : pool.reserved;
  return cudaSuccess;
}

cudaError_t pool_access(cudaMemPool_t handle, const cudaMemAccessDesc* list, std::size_t count) {
  ENTER("MemPoolSetAccess");
  if (!driver().peer_access()) return status(cudaErrorInvalidValue);
  const auto held = driver().lock();
  for (std::size_t i = 0; i < count; ++i) pool_at(handle).access.insert(list[i].location.id);
  return cudaSuccess;
}

cudaError_t pool_trim(cudaMemPool_t handle, std::size_t keep) {
  ENTER("MemPoolTrimTo");
  const auto held = driver().lock();
  pool_at(handle).trim(keep);
  return cudaSuccess;
}

cudaError_t allocate_from_pool(void** data, std::size_t bytes, cudaMemPool_t handle,
                               cudaStream_t stream) {
  ENTER("MallocFromPoolAsync");
  Stream& on = driver().queue_on(stream);
  const auto held = driver().lock();
  if (on.device != FakeDriver::current_device()) return status(cudaErrorInvalidResourceHandle);
  *data = pool_at(handle).take(bytes, on);
  return status(*data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t free_async(void* data, cudaStream_t stream) {
  ENTER("FreeAsync");
  Stream& on = driver().queue_on(stream);
  const auto held = driver().lock();
  if (on.device != FakeDriver::current_device()) return status(cudaErrorInvalidResourceHandle);
  Pool* pool = pool_of(data);
  if (pool == nullptr || !pool->give(static_cast<char*>(data), on)) {
    driver().complain("cudaFreeAsync of memory that no pool gave");
    return status(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

}  // namespace

bool is_of_a_pool(const void* data) {
  const auto held = driver().lock();
  return pool_of(data) != nullptr;
}

bool is_free_in_a_pool(const void* data) {
  const auto held = driver().lock();
  const Pool* pool = pool_of(data);
  return pool != nullptr && !pool->gave(data);
}

void check_pool_access(int device, const void* data, const char* call) {
  const auto held = driver().lock();
  const Pool* pool = pool_of(data);
  if (pool == nullptr || pool->device == device || pool->access.contains(device)) return;
  driver().complain(std::string(call) + ": cuda:" + std::to_string(device) +
                    " has no access to the pool of cuda:" + std::to_string(pool->device));
}

void add_pool_calls(CudaApi& api) {
  api.FreeAsync = free_async;
  api.MallocFromPoolAsync = allocate_from_pool;
  api.MemPoolCreate = pool_create;
  api.MemPoolDestroy = pool_destroy;
  api.MemPoolGetAttribute = pool_get;
  api.MemPoolSetAccess = pool_access;
  api.MemPoolSetAttribute = pool_set;
  api.MemPoolTrimTo = pool_trim;
}

}  // namespace coshard::testing
