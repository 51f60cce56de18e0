// main() of the tests on the fake driver. COSHARD_TEST_SEED is the first seed; each repetition
// (GTEST_REPEAT) takes the next. COSHARD_TEST_DEVICES: the number of devices; by default 1, 2 and 4
// in turn. COSHARD_TEST_PATIENCE: seconds after which a call that waits for a device in vain fails.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/support/device.h"
#include "tests/support/fake_cuda/fake_driver.h"
#ifdef COSHARD_FAKE_NCCL
#include "tests/support/fake_cuda/fake_nccl.h"
#endif

namespace {

using coshard::testing::FakeDriver;

class NextSeed final : public ::testing::Environment {
 public:
  NextSeed(std::uint64_t first, int devices) : seed_(first), devices_(devices) {}
  void SetUp() override {
    std::printf("fake driver: seed %llu\n", static_cast<unsigned long long>(seed_));
    if (devices_ == 0)
      FakeDriver::get().set_devices(seed_ % 3 == 0 ? 4 : static_cast<int>(seed_ % 3));
    FakeDriver::get().reseed(seed_++);
  }
  void TearDown() override {
    EXPECT_EQ(FakeDriver::get().complaints(), std::vector<std::string>());
  }

 private:
  std::uint64_t seed_;
  int devices_;  // 0: 1, 2 or 4 in turn
};

// Each test starts with the driver as in a new process, and fails if there are complaints.
class NextTest final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override { FakeDriver::get().forget(); }
  void OnTestEnd(const ::testing::TestInfo&) override {
    EXPECT_EQ(FakeDriver::get().take_complaints(), std::vector<std::string>());
  }
};

}  // namespace

int main(int argc, char** argv) {
  using coshard::testing::variable;
  ::testing::InitGoogleTest(&argc, argv);
  ::setenv("COSHARD_TEST_FAKE", "1", 1);  // for tests of what only a GPU shows
  const auto seed = std::stoull(variable("COSHARD_TEST_SEED", "1"));
  const int devices = std::stoi(variable("COSHARD_TEST_DEVICES", "0"));
  FakeDriver::get().install(seed, devices == 0 ? 2 : devices);
#ifdef COSHARD_FAKE_NCCL
  coshard::testing::install_fake_nccl();
#endif
  FakeDriver::get().set_patience(
      std::chrono::seconds(std::stoi(variable("COSHARD_TEST_PATIENCE", "20"))));
  ::testing::UnitTest::GetInstance()->listeners().Append(new NextTest());
  ::testing::AddGlobalTestEnvironment(new NextSeed(seed, devices));
  return RUN_ALL_TESTS();
}
