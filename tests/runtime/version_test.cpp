#include <coshard/version.h>

#include <gtest/gtest.h>

#include <string>

namespace coshard {
namespace {

TEST(Version, OfTheLibraryIsThatOfItsHeaders) {
  EXPECT_EQ(version(), COSHARD_VERSION);
  const std::string parts = std::to_string(COSHARD_VERSION_MAJOR) + "." +
                            std::to_string(COSHARD_VERSION_MINOR) + "." +
                            std::to_string(COSHARD_VERSION_PATCH);
  EXPECT_EQ(version(), parts);
}

}  // namespace
}  // namespace coshard
