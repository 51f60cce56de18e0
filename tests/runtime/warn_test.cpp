#include "runtime/warn.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

TEST(WarnOnce, SaysATextOnce) {
  ::testing::internal::CaptureStderr();
  warn_once("the disk is nearly full");
  warn_once("the disk is full");
  warn_once("the disk is nearly full");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "warning: the disk is nearly full\nwarning: the disk is full\n");
}

}  // namespace
}  // namespace coshard
