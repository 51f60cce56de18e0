#pragma once
// The text of what a call refuses.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/support/ranks.h"

namespace coshard::testing {

inline std::string thrown_by(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "nothing";
}

}  // namespace coshard::testing
