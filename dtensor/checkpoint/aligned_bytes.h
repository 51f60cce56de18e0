#pragma once
// Host memory for files that are read and written past the page cache (O_DIRECT), which wants
// addresses, places and sizes that are multiples of a block.
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

// Bytes that are not set to 0 first.
template <class T>
struct Uninitialized : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = Uninitialized<U>;
  };
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
      : memory_(static_cast<std::byte*>(
            std::aligned_alloc(kBlock, static_cast<std::size_t>(in_blocks(capacity) + kBlock)))),
        capacity_(in_blocks(capacity)) {
    if (memory_ == nullptr) throw std::bad_alloc();
  }
  std::int64_t capacity() const { return capacity_; }
  std::span<std::byte> first(std::int64_t size) const {
    return {memory_.get(), static_cast<std::size_t>(size)};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
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
