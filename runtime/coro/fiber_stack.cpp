#include "runtime/coro/fiber_stack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/coro/fiber_switch.h"

namespace coshard {

namespace {

constexpr std::size_t kKeep = 64;
constexpr std::size_t kKeptBytes = std::size_t{256} << 10;  // memory of each kept stack, at most
constexpr std::size_t kLeast = std::size_t{16} << 10;

std::size_t page() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

struct Mapping {
  std::byte* bottom;
  std::size_t bytes;
};

std::byte* map_stack(std::size_t bytes) {
  void* memory = ::mmap(nullptr, FiberStack::kGuard + bytes, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  std::byte* bottom =
      memory != MAP_FAILED ? static_cast<std::byte*>(memory) + FiberStack::kGuard : nullptr;
  if (bottom == nullptr || ::mprotect(bottom, bytes, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    if (bottom != nullptr) ::munmap(memory, FiberStack::kGuard + bytes);
    fail(ErrorKind::BadInput,
         str_cat("fiber: cannot allocate a stack of ", bytes, " bytes: ", std::strerror(error),
                 "; run fewer ranks, lower WorldOptions::stack_bytes, or raise ulimit -v"));
  }
  ::madvise(bottom, bytes, MADV_NOHUGEPAGE);  // a rank that needs a few KiB must not take 2 MiB
  return bottom;
}
void unmap_stack(Mapping stack) noexcept {
  ::munmap(stack.bottom - FiberStack::kGuard, FiberStack::kGuard + stack.bytes);
}

// Returns the memory of what a deep call has touched.
void trim(Mapping stack) noexcept {
  if (stack.bytes > kKeptBytes) ::madvise(stack.bottom, stack.bytes - kKeptBytes, MADV_DONTNEED);
}

// Fibers owned by objects of static storage duration may end after their thread's pool.
constinit thread_local bool pool_is_gone = false;
struct Pool {
  std::vector<Mapping> free;
  Pool() { free.reserve(kKeep); }
  ~Pool() {
    for (const Mapping stack : free) unmap_stack(stack);
    pool_is_gone = true;
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
};
thread_local Pool pool;

std::byte* take_stack(std::size_t bytes) {
  if (!pool_is_gone) {
    for (std::size_t i = pool.free.size(); i-- > 0;) {
      const Mapping stack = pool.free[i];
      if (stack.bytes != bytes) continue;
      pool.free.erase(pool.free.begin() + static_cast<std::ptrdiff_t>(i));
      return stack.bottom;
    }
  }
  return map_stack(bytes);
}

std::size_t whole_pages(std::size_t bytes) {
  CS_REQUIRE(bytes >= kLeast && bytes <= SIZE_MAX / 2, "fiber: stack size of ", bytes,
             " bytes is too small or too large; it needs at least ", kLeast);
  return (bytes + page() - 1) / page() * page();
}

}  // namespace

FiberStack::FiberStack(std::size_t bytes)
    : bytes_(whole_pages(bytes)), bottom_(take_stack(bytes_)) {}

FiberStack::~FiberStack() {
  forget_stack(bottom_, bytes_);
  if (pool_is_gone) {
    unmap_stack({bottom_, bytes_});
    return;
  }
  if (pool.free.size() == kKeep) {
    unmap_stack(pool.free.front());
    pool.free.erase(pool.free.begin());
  }
  trim({bottom_, bytes_});
  pool.free.push_back({bottom_, bytes_});
}

}  // namespace coshard
