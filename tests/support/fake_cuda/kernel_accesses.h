#pragma once
// What a kernel reads and writes, byte by byte, as instrumented by the compiler: kernel bodies are
// compiled with -fsanitize=thread, and its callbacks are implemented here instead of by its
// library. In a build with a sanitizer no accesses are seen.
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {

class KernelAccesses {
 public:
  struct Range {
    const void* begin;
    std::size_t bytes;
    bool writes;
  };
  static bool seen();  // whether accesses are, in this build

  // From now on until take(), records this thread's accesses to memory in `reach`, but not to
  // stacks and shared memory.
  explicit KernelAccesses(const std::vector<FakeDriver::Allocation>& reach);
  ~KernelAccesses();
  KernelAccesses(const KernelAccesses&) = delete;
  KernelAccesses& operator=(const KernelAccesses&) = delete;
  // The accesses so far: reads first, by address, adjacent ones merged.
  std::vector<Range> take();

  void note(std::uintptr_t at, std::size_t bytes, bool writes) {
    if (at - last_.begin >= last_.bytes && !look_up(at)) return;
    while (bytes > 0) {
      const std::uintptr_t bit = at % 64, here = bytes < 64 - bit ? bytes : 64 - bit;
      Page& page = at / kPage == number_ ? *page_ : turn_to(at / kPage);
      const std::uint64_t mask = here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1;
      (writes ? page.written : page.read)[at % kPage / 64] |= mask << bit;
      at += here;
      bytes -= here;
    }
  }

 private:
  static constexpr std::uintptr_t kPage = 4096;
  // The bytes that were read and that were written: one bit each.
  struct Page {
    std::array<std::uint64_t, kPage / 64> read{}, written{};
  };
  struct Memory {
    std::uintptr_t begin = 0, bytes = 0;
  };
  bool look_up(std::uintptr_t at);
  Page& turn_to(std::uintptr_t number);

  std::vector<Memory> reach_;
  Memory last_;                           // last used
  std::map<std::uintptr_t, Page> pages_;  // by number
  Page* page_ = nullptr;                  // the last one
  std::uintptr_t number_ = 0;
};

}  // namespace coshard::testing
