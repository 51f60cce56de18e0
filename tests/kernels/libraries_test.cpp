// Which libraries the kernels of a device use.
#include <gtest/gtest.h>

#include "kernels/libraries.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(LibrariesOf, TheCpuNamesEachOfItsLibrariesWithAVersion) {
  for (const auto& [name, version] : libraries_of(DeviceKind::Cpu)) {
    EXPECT_NE(name, "");
    EXPECT_NE(version.find('.'), std::string::npos) << name << " " << version;
  }
}

TEST(LibrariesOf, ADeviceWithoutKernelsHasNone) {
  EXPECT_TRUE(libraries_of(DeviceKind("tpu")).empty());
}

}  // namespace
}  // namespace coshard::kernels
