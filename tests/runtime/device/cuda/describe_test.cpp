// Where a device is: its PCI address, the NUMA node next to it, ECC.
#include "runtime/device/cuda/describe.h"

#include <filesystem>
#include <fstream>

#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

namespace files = std::filesystem;

class NumaPlaceOf : public ::testing::Test {
 protected:
  void SetUp() override {
    sysfs_ = files::temp_directory_path() / ("numa_place_" + std::to_string(::getpid()));
    files::create_directories(device());
  }
  void TearDown() override { files::remove_all(sysfs_); }
  files::path device() const { return sysfs_ / "bus/pci/devices/0000:3b:00.0"; }
  NumaPlace place() const { return numa_place("0000:3b:00.0", sysfs_.string()); }

  files::path sysfs_;
};

TEST_F(NumaPlaceOf, ADeviceNextToTheSecondNode) {
  std::ofstream(device() / "numa_node") << "1\n";
  std::ofstream(device() / "local_cpulist") << "32-63,96-127\n";
  EXPECT_EQ(place().node, 1);
  EXPECT_EQ(place().cpus, "32-63,96-127");
}

// A host with one node, or a virtual machine that hides them.
TEST_F(NumaPlaceOf, NoNode) {
  std::ofstream(device() / "numa_node") << "-1\n";
  std::ofstream(device() / "local_cpulist") << "0-15\n";
  EXPECT_EQ(place().node, -1);
  EXPECT_EQ(place().cpus, "");
}

TEST_F(NumaPlaceOf, AnUnknownDevice) {
  EXPECT_EQ(numa_place("0000:ff:00.0", sysfs_.string()).node, -1);
}

TEST(DescribeCuda, EachDeviceHasItsAddress) {
  const BackendDescription found = describe_cuda();
  ASSERT_EQ(found.devices.size(), 2U);
  EXPECT_EQ(found.devices[0].place, "PCI fade:3b:00.0, ECC on");
  EXPECT_EQ(found.devices[1].place, "PCI fade:3c:00.0, ECC on");
}

}  // namespace
}  // namespace coshard::testing
