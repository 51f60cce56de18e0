#pragma once
// Host memory for files that are read and written past the page cache (O_DIRECT), which wants
// addresses, places and sizes that are multiples of a block.
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace coshard {

inline constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t in_blocks(std::int64_t bytes) {
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

// Memory of whole blocks. Much of it is mapped in huge pages, where the system has them: there are
// fewer to be cleared, and to be held while a disk reads or writes them; and it goes back to the system
// when it is freed. Never null; of the same number of bytes for free_blocks.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;
inline void* allocate_blocks(std::size_t bytes) {
  if (bytes < kHugePage) {
    const auto whole = static_cast<std::size_t>(in_blocks(static_cast<std::int64_t>(bytes)));
    void* const memory = std::aligned_alloc(static_cast<std::size_t>(kBlock),
                                            std::max(whole, static_cast<std::size_t>(kBlock)));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  // A page more, of which what lies before and behind is given back.
  const auto whole = static_cast<std::size_t>(in_blocks(static_cast<std::int64_t>(bytes)));
  void* const mapped = ::mmap(nullptr, whole + kHugePage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(begin) % kHugePage;
  const std::size_t before = past == 0 ? 0 : kHugePage - past;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + whole, kHugePage - before);
  ::madvise(begin + before, whole, MADV_HUGEPAGE);  // a hint
  return begin + before;
}
inline void free_blocks(void* memory, std::size_t bytes) {
  if (bytes < kHugePage)
    std::free(memory);
  else
    ::munmap(memory, static_cast<std::size_t>(in_blocks(static_cast<std::int64_t>(bytes))));
}

// Bytes that are not set to 0 first.
template <class T>
struct Uninitialized {
  using value_type = T;
  Uninitialized() = default;
  template <class U>
  Uninitialized(const Uninitialized<U>&) noexcept {}  // NOLINT: as allocators are converted
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_blocks(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { free_blocks(memory, count * sizeof(T)); }
  bool operator==(const Uninitialized&) const = default;
  template <class U>
  void construct(U* place) noexcept {
    ::new (static_cast<void*>(place)) U;
  }
  template <class U, class... Args>
  void construct(U* place, Args&&... args) {
    ::new (static_cast<void*>(place)) U(std::forward<Args>(args)...);
  }
};
using ByteVector = std::vector<std::byte, Uninitialized<std::byte>>;

// Uninitialized. Owned by one thread at a time.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::int64_t capacity)
      : memory_(
            static_cast<std::byte*>(allocate_blocks(static_cast<std::size_t>(in_blocks(capacity)))),
            Free{static_cast<std::size_t>(in_blocks(capacity))}),
        capacity_(in_blocks(capacity)) {}
  std::int64_t capacity() const { return capacity_; }
  std::span<std::byte> first(std::int64_t size) const {
    return {memory_.get(), static_cast<std::size_t>(size)};
  }

 private:
  struct Free {
    std::size_t bytes;
    void operator()(std::byte* memory) const { free_blocks(memory, bytes); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t capacity_ = 0;
};

// Memory that has been used is used again: its pages are there. Any thread.
template <class Bytes>
class Pool {
 public:
  // The one with the most room; empty: there is none.
  Bytes take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return Bytes();
    const auto largest =
        std::ranges::max_element(free_, {}, [](const Bytes& bytes) { return room_of(bytes); });
    Bytes taken = std::move(*largest);
    free_.erase(largest);
    return taken;
  }
  void give(Bytes bytes) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(bytes));
  }

 private:
  static std::size_t room_of(const ByteVector& bytes) { return bytes.capacity(); }
  static std::size_t room_of(const AlignedBytes& bytes) {
    return static_cast<std::size_t>(bytes.capacity());
  }
  std::mutex mutex_;
  std::vector<Bytes> free_;
};
using BytesPool = Pool<AlignedBytes>;

inline AlignedBytes take_aligned(BytesPool& pool, std::int64_t size) {
  AlignedBytes taken = pool.take();
  return taken.capacity() >= size ? std::move(taken) : AlignedBytes(size);
}

}  // namespace coshard
