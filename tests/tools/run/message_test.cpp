#include "tools/run/message.h"

#include <gtest/gtest.h>

#include <coshard/runtime/error.h>

namespace coshard::job {
namespace {

TEST(Message, AHeaderSaysKindAndSize) {
  for (const std::uint32_t size : {0u, 1u, 255u, 256u, kLongestMessage}) {
    const MessageShape shape = shape_of(header_of(MessageKind::Err, size));
    EXPECT_EQ(shape.kind, MessageKind::Err);
    EXPECT_EQ(shape.size, size);
  }
}

TEST(Message, WhatIsNoHeaderIsRefused) {
  EXPECT_THROW(shape_of(header_of(MessageKind::Out, kLongestMessage + 1)), Error);
  EXPECT_THROW(shape_of({'G', 'E', 'T', ' ', '/'}), Error);
}

}  // namespace
}  // namespace coshard::job
