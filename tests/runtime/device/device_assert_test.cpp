// What a kernel found, as text.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "runtime/device/device_assert.h"

namespace coshard {
namespace {

TEST(Findings, NameTheOperatorTheValueAndItsLimit) {
  for (const auto& [kind, name] : {std::pair{DeviceAssertKind::EmbeddingId, "embedding"},
                                   std::pair{DeviceAssertKind::GatherIndex, "gather"},
                                   std::pair{DeviceAssertKind::ScatterIndex, "scatter"},
                                   std::pair{DeviceAssertKind::Target, "target"},
                                   std::pair{DeviceAssertKind::Division, "division"}}) {
    const std::string text = describe(kind, -17, 8);
    EXPECT_NE(text.find(name), std::string::npos) << text;
    EXPECT_NE(text.find("-17"), std::string::npos) << text;
    EXPECT_NE(text.find('8'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace coshard
