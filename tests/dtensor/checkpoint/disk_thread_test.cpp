// A thread for files: tasks in order, none after one that fails, and none begun after the end.
#include "dtensor/checkpoint/disk_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/dtensor/checkpoint/stored_files.h"

namespace coshard::testing {
namespace {

TEST(DiskThread, RunsTasksInTheirOrder) {
  DiskThread disk;
  EXPECT_TRUE(disk.is_idle());
  std::vector<int> ran;
  for (int i = 0; i < 100; ++i) {
    disk.run([&ran, i] { ran.push_back(i); });
    disk.wait(3);
  }
  disk.wait();
  ASSERT_EQ(ran.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(disk.is_idle() && !disk.failure());
}

TEST(DiskThread, RunsNoneAfterOneThatFails) {
  DiskThread disk;
  bool ran = false;
  disk.run([] { fail(ErrorKind::DeviceFailed, "disk"); });
  disk.run([&ran] { ran = true; });
  disk.wait();
  EXPECT_FALSE(ran);
  ASSERT_TRUE(disk.failure());
  EXPECT_EQ(message_of([&] { std::rethrow_exception(disk.failure()); }), "disk");
}

TEST(DiskThread, EndsTheTaskAtHand) {
  std::atomic<int> ran = 0;
  std::atomic<bool> begun = false, goes_on = false;
  {
    DiskThread disk;
    disk.run([&] {
      begun = true;
      while (!goes_on) std::this_thread::yield();
      ++ran;
    });
    disk.run([&] { ran += 100; });
    while (!begun) std::this_thread::yield();
    disk.run([&] { ran += 100; });
    goes_on = true;
  }
  EXPECT_EQ(ran % 100, 1);
}

}  // namespace
}  // namespace coshard::testing
