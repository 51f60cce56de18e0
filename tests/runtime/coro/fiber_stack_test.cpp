// Stacks of fibers: a guard page, and stacks that are used again.
#include "runtime/coro/fiber.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

bool readable(const void* address) {
  std::array<int, 2> ends;
  EXPECT_EQ(::pipe(ends.data()), 0);
  const bool wrote = ::syscall(SYS_write, ends[1], address, 1) == 1;
  for (const int end : ends) ::close(end);
  return wrote;
}

TEST(FiberStack, HasAGuardPageBelowIt) {
  const FiberStack stack(20'000);
  EXPECT_GE(stack.bytes(), 20'000U);
  const auto* bottom = static_cast<const std::byte*>(stack.bottom());
  EXPECT_TRUE(readable(bottom));
  EXPECT_TRUE(readable(static_cast<const std::byte*>(stack.top()) - 1));
  EXPECT_FALSE(readable(bottom - 1));
}

TEST(FiberStack, IsTheOneOfAFiberThatHasEnded) {
  const void* first = nullptr;
  {
    const FiberStack stack(20'000);
    first = stack.bottom();
  }
  const FiberStack larger(40'000);
  const FiberStack again(20'000);
  EXPECT_EQ(again.bottom(), first);
  EXPECT_NE(larger.bottom(), first);
}

}  // namespace
}  // namespace coshard
