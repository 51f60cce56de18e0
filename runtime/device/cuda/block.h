#pragma once
// A kernel body's view of its block: indices, shared memory, barrier, shuffles, atomics. On the
// device these are the intrinsics; compiled by a host compiler, `Block` is an interface that the
// tests' emulator implements, with a fiber for each thread. The same body runs on both.
//
// Rules for bodies: every thread of the block reaches every barrier, every lane of a warp every
// shuffle (no divergent returns before one); shared memory is uninitialised at the start; a kernel
// that uses any of these derives from PerBlock. Asynchronous copies (sm_80): a thread's copies
// since the last commit_copies() are one group; wait_copies<n>() returns when all but its n latest
// groups have arrived, and a barrier then makes them visible to other threads. Warp-level matrix
// multiplication: fragment.h.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#if defined(__CUDACC__)
#define CS_BODY __device__ __forceinline__
#define CS_HOST_BODY __host__ __device__ __forceinline__
#define CS_UNROLL _Pragma("unroll")  // a loop over registers
#else
#define CS_BODY inline
#define CS_HOST_BODY inline
#define CS_UNROLL
#endif

namespace coshard {

constexpr int kWarp = 32;

#if defined(__CUDACC__)

CS_BODY void check_aligned(const void*, std::size_t) {}

class Block {
 public:
  CS_BODY std::uint32_t index() const { return blockIdx.x; }
  CS_BODY std::uint32_t count() const { return gridDim.x; }  // blocks
  CS_BODY int thread() const { return static_cast<int>(threadIdx.x); }
  CS_BODY int threads() const { return static_cast<int>(blockDim.x); }
  CS_BODY std::int64_t grid_thread() const {
    return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  }
  CS_BODY std::int64_t grid_threads() const {
    return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  }
  CS_BODY int lane() const { return thread() % kWarp; }
  CS_BODY int warp() const { return thread() / kWarp; }
  CS_BODY void barrier() { __syncthreads(); }
  CS_BODY void warp_barrier() { __syncwarp(); }
  // Dynamic shared memory, 16-byte aligned, from `offset` bytes on.
  template <class T>
  CS_BODY T* shared(std::size_t offset = 0) {
    extern __shared__ __align__(16) unsigned char coshard_shared[];
    return reinterpret_cast<T*>(coshard_shared + offset);
  }
  template <class T>
  CS_BODY T shuffle(T value, int lane) {
    return __shfl_sync(0xffffffffU, value, lane);
  }
  template <class T>
  CS_BODY T shuffle_xor(T value, int mask) {
    return __shfl_xor_sync(0xffffffffU, value, mask);
  }
  template <class T>
  CS_BODY T shuffle_up(T value, int delta) {  // lanes below delta keep their value
    return __shfl_up_sync(0xffffffffU, value, delta);
  }
  // *at += value; relaxed, device scope. Returns what was there.
  CS_BODY float atomic_add(float* at, float value) { return atomicAdd(at, value); }
  CS_BODY double atomic_add(double* at, double value) { return atomicAdd(at, value); }
  CS_BODY std::int32_t atomic_add(std::int32_t* at, std::int32_t value) {
    return atomicAdd(at, value);
  }
  CS_BODY std::int64_t atomic_add(std::int64_t* at, std::int64_t value) {
    return static_cast<std::int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(at),
                                               static_cast<unsigned long long>(value)));
  }
  // Compare and swap of one word; returns what was there.
  CS_BODY std::uint32_t atomic_cas(std::uint32_t* at, std::uint32_t expected, std::uint32_t value) {
    return atomicCAS(at, expected, value);
  }
  CS_BODY std::uint64_t atomic_cas(std::uint64_t* at, std::uint64_t expected, std::uint64_t value) {
    return atomicCAS(reinterpret_cast<unsigned long long*>(at),
                     static_cast<unsigned long long>(expected),
                     static_cast<unsigned long long>(value));
  }
  // Other blocks, and the host for mapped memory, see this thread's writes before the fence before
  // those after it.
  CS_BODY void fence() { __threadfence_system(); }
  // Copies 16 bytes from global to shared memory, both aligned to 16; if not `there`, writes zeros
  // and does not read `global`.
  CS_BODY void copy16(void* shared, const void* global, bool there = true) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(shared))),
                 "l"(__cvta_generic_to_global(global)), "r"(there ? 16 : 0)
                 : "memory");
  }
  CS_BODY void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int newest>
  CS_BODY void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(newest) : "memory");
  }
};

#else

// A `bytes`-wide access needs an address that is a multiple of `bytes`; a device would trap.
inline void check_aligned(const void* at, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(at) % bytes != 0) [[unlikely]]
    throw std::runtime_error("a misaligned access to " + std::to_string(bytes) + " bytes");
}

class Block {
 public:
  virtual ~Block() = default;
  std::uint32_t index() const { return index_; }
  std::uint32_t count() const { return count_; }
  int thread() const { return thread_; }
  int threads() const { return threads_; }
  std::int64_t grid_thread() const {
    return static_cast<std::int64_t>(index_) * threads_ + thread_;
  }
  std::int64_t grid_threads() const { return static_cast<std::int64_t>(count_) * threads_; }
  int lane() const { return thread_ % kWarp; }
  int warp() const { return thread_ / kWarp; }
  virtual void barrier() = 0;
  virtual void warp_barrier() = 0;
  template <class T>
  T* shared(std::size_t offset = 0) {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  template <class T>
  T shuffle(T value, int lane) {
    exchange(&value, sizeof value, lane % kWarp);
    return value;
  }
  template <class T>
  T shuffle_xor(T value, int mask) {
    exchange(&value, sizeof value, lane() ^ mask);
    return value;
  }
  template <class T>
  T shuffle_up(T value, int delta) {
    exchange(&value, sizeof value, lane() < delta ? lane() : lane() - delta);
    return value;
  }
  // Blocks are run one at a time.
  template <class T>
  T atomic_add(T* at, T value) {
    const T before = *at;
    *at = static_cast<T>(before + value);
    return before;
  }
  template <class T>
  T atomic_cas(T* at, T expected, T value) {
    const T before = *at;
    if (before == expected) *at = value;
    return before;
  }
  void fence() {}
  // A copy lands at once or when it is waited for, at random: a copy without a wait may never
  // arrive, and one may land while other threads still read the old contents.
  void copy16(void* shared, const void* global, bool there = true) {
    check_aligned(shared, 16);
    check_aligned(global, 16);
    const Copy copy{group_, shared, there ? global : nullptr};
    landings_ = landings_ * 6364136223846793005U + 1442695040888963407U;
    if (landings_ >> 63 == 0) {
      land(copy);
    } else {
      copies_.push_back(copy);
    }
  }
  void commit_copies() { ++group_; }
  template <int newest>
  void wait_copies() {
    std::erase_if(copies_, [&](const Copy& copy) {
      if (copy.group + newest >= group_) return false;
      land(copy);
      return true;
    });
  }
  // The values of all lanes of the warp, in lane order.
  template <class T>
  std::array<T, kWarp> gather(const T& mine) {
    std::array<T, kWarp> all;
    exchange_all(&mine, sizeof mine, all.data());
    return all;
  }

 protected:
  struct Copy {
    int group;
    void* to;
    const void* from;  // null: zeros
  };
  static void land(const Copy& copy) {
    std::memset(copy.to, 0, 16);
    if (copy.from != nullptr) std::memcpy(copy.to, copy.from, 16);
  }
  // All lanes of the warp contribute a value; each gets that of lane `from` (its own if that lane
  // does not exist).
  virtual void exchange(void* value, std::size_t bytes, int from) = 0;
  // All lanes of the warp contribute a value and get those of all lanes.
  virtual void exchange_all(const void* value, std::size_t bytes, void* all) = 0;

  std::uint32_t index_ = 0, count_ = 1;
  int thread_ = 0, threads_ = 1;
  unsigned char* shared_ = nullptr;
  std::vector<Copy> copies_;    // in flight
  int group_ = 0;               // of the next copy
  std::uint64_t landings_ = 0;  // random state that decides when the next copy lands
};

#endif

}  // namespace coshard
