// What all devices share: kinds by name, buffers, and what a waiting host looks after.
#include <gtest/gtest.h>

#include <vector>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

TEST(DeviceBase, KindsAreEqualByName) {
  static const char mine[] = "cpu";  // of another library, perhaps
  EXPECT_EQ(DeviceKind(mine), DeviceKind::Cpu);
  EXPECT_NE(DeviceKind::Cuda, DeviceKind::Cpu);
  EXPECT_EQ(to_string(DeviceKind::Cuda), "cuda");
}

TEST(DeviceBase, ABufferOfNothingHasAnAddressAndABorrowedOneIsNotOwned) {
  const std::shared_ptr<Device> device = make_cpu_device(1);
  EXPECT_NE(device->make_buffer(0)->data(), nullptr);
  EXPECT_FALSE(device->make_buffer(0)->owned());
  EXPECT_TRUE(device->make_buffer(8)->owned());
  double mine = 0;
  const std::shared_ptr<Buffer> lent = device->borrow(&mine, sizeof mine);
  EXPECT_EQ(lent->data(), &mine);
  EXPECT_EQ(lent->bytes(), sizeof mine);
  EXPECT_FALSE(lent->owned());
}

TEST(DeviceBase, LooksAfterWhatIsWatchedUntilThatIsOver) {
  struct Looked final : Watched {
    bool over() override { return done; }
    void check(std::int64_t waited_ns) override { seen.push_back(waited_ns); }
    bool done = false;
    std::vector<std::int64_t> seen;
  };
  const std::shared_ptr<Device> device = make_cpu_device(1);
  const auto looked = std::make_shared<Looked>();
  device->watch(looked);
  device->check_watched(7);
  looked->done = true;
  device->check_watched(8);
  EXPECT_EQ(looked->seen, std::vector<std::int64_t>{7});
  EXPECT_EQ(looked.use_count(), 1);
}

TEST(DeviceBase, SettlesOnceNothingIsLeftToCheck) {
  struct Pending final : Watched {
    bool over() override { return false; }
    void check(std::int64_t) override {
      if (++checks == fails_at) fail(ErrorKind::CommFailed, "peers differ");
    }
    bool settled() override { return checks >= 3; }
    int checks = 0, fails_at = 0;
  };
  const std::shared_ptr<Device> device = make_cpu_device(1);
  const auto pending = std::make_shared<Pending>();
  device->watch(pending);
  device->settle();
  EXPECT_EQ(pending->checks, 3);
  device->settle();
  EXPECT_EQ(pending->checks, 3);
  pending->checks = 0, pending->fails_at = 2;
  EXPECT_THROW(device->settle(), Error);
}

TEST(DeviceBase, LetsGoOfWhatIsOverWhereMuchIsWatched) {
  struct Over final : Watched {
    bool over() override { return true; }
    void check(std::int64_t) override {}
  };
  const std::shared_ptr<Device> device = make_cpu_device(1);
  const auto over = std::make_shared<Over>();
  for (int i = 0; i < 1000; ++i) device->watch(over);
  EXPECT_LE(over.use_count(), 66);
}

}  // namespace
}  // namespace coshard
