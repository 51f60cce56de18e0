// A rank that is inside of NCCL or of the driver, where it cannot look: the watchdog sees for it
// that a peer has failed or is late, and lets it go. And the thread is there only while it is
// needed.
#include <dirent.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "runtime/device/graph.h"
#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

class NcclWatchdog : public ::testing::Test {
 protected:
  void TearDown() override { FakeDriver::get().clear_faults(); }
};

// How many threads of this process have that name.
int threads_named(const std::string& name) {
  int count = 0;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* task = readdir(tasks)) {
    std::ifstream file(std::string("/proc/self/task/") + task->d_name + "/comm");
    std::string text;
    count += std::getline(file, text) && text == name;
  }
  closedir(tasks);
  return count;
}

// A thread names itself, when it gets its turn. One of that name, then.
bool comes_to_be_named(const std::string& name) {
  for (int i = 0; i < 1000 && threads_named(name) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return threads_named(name) == 1;
}

TEST_F(NcclWatchdog, IsOneThreadForAllCommunicatorsAndEndsWithTheLast) {
  EXPECT_EQ(threads_named("nccl watchdog"), 0);
  on_nccl_ranks({.ranks = 3}, [](NcclRank& mine) {
    const std::vector<int> all{0, 1, 2};
    const auto other = mine.comm->subgroup(all, "other");
    other->issue(nccl_sum_of(NcclNumbers(mine, {1}))).wait();
    EXPECT_TRUE(comes_to_be_named("nccl watchdog"));
    mine.device->synchronize();
    mine.host->issue(Collective()).wait();
  });
  EXPECT_EQ(threads_named("nccl watchdog"), 0);
}

TEST_F(NcclWatchdog, ACollectiveStartsNoThread) {
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
    mine.host->issue(Collective()).wait();
    const int before = threads_named("nccl abort");
    FakeDriver::get().reset_counts();
    mine.host->issue(Collective()).wait();
    for (int i = 0; i < 50; ++i) mine.comm->issue(nccl_sum_of(numbers)).wait();
    EXPECT_EQ(threads_named("nccl abort"), before);
    EXPECT_TRUE(comes_to_be_named("nccl watchdog"));
    mine.host->issue(Collective()).wait();
  });
}

// The first use of an algorithm connects the ranks, and waits for the one that never comes.
TEST_F(NcclWatchdog, APeerThatDoesNotComeToTheFirstUseIsNamedInTime) {
  std::atomic<bool> over{false};
  NcclSetting setting{.ranks = 2};
  setting.timeout_ns = kNcclSecond / 5;
  const auto outcomes = nccl_outcomes(setting, [&](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    if (mine.rank == 1) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    const NcclOutcome outcome = outcome_of([&] { mine.comm->issue(nccl_sum_of(numbers)).wait(); });
    over = true;
    EXPECT_EQ(outcome.kind, ErrorKind::Timeout) << outcome.text;
    EXPECT_NE(outcome.text.find("missing: 1 (has issued no collective on tp["), std::string::npos)
        << outcome.text;
  });
  for (const NcclOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
}

TEST_F(NcclWatchdog, APeerThatLeavesBeforeTheFirstUseLetsTheOthersGoAtOnce) {
  const auto outcomes = nccl_outcomes({.ranks = 3}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    if (mine.rank == 2) return;
    mine.comm->issue(nccl_sum_of(numbers)).wait();
  });
  for (int rank : {0, 1}) {
    const NcclOutcome& outcome = outcomes[static_cast<std::size_t>(rank)];
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("rank 2 left"), std::string::npos) << outcome.text;
  }
}

TEST_F(NcclWatchdog, ARankThatFailsInsideLetsThoseInsideGoWithItsCause) {
  const std::size_t before = fake_nccl_communicators();
  for (const char* name : {"ncclCommInitRankConfig", "ncclCommSplit", "ncclCommWindowRegister",
                           "ncclAllReduce", "ncclGroupEnd"}) {
    FakeDriver::get().set_fault({.call = name, .error = ncclSystemError});
    const NcclSetting setting{.ranks = 4};
    const auto outcomes = nccl_outcomes(setting, [](NcclRank& mine) {
      const int first = mine.rank / 2 * 2;
      const auto row = mine.comm->split(std::vector<int>{first, first + 1}, "row");
      const auto window = mine.comm->symmetric_buffer(64);
      const NcclNumbers part(mine, {1}), whole(mine, {0, 0, 0, 0});
      mine.comm->issue(nccl_sum_of(part)).wait();
      Collective c = nccl_sum_of(part);
      c.kind = CollectiveKind::AllGather;
      c.extent = 4;
      c.recv = whole.buffer->data();
      c.by_shards = true;
      mine.comm->issue(c).wait();
      mine.device->synchronize();
    });
    FakeDriver::get().clear_faults();
    for (const NcclOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.kind, ErrorKind::CommFailed) << name;
      EXPECT_NE(outcome.text.find("ncclSystemError"), std::string::npos) << outcome.text;
    }
  }
  EXPECT_EQ(fake_nccl_communicators(), before);
}

// The rank is stuck elsewhere, with what the device waits for behind it.
TEST_F(NcclWatchdog, WhatTheDeviceWaitsForIsEndedWhileTheRankCannotLook) {
  Fault fault;
  fault.call = "ncclAllReduce";
  fault.stuck = true;
  fault.times = 2;
  FakeDriver::get().set_fault(fault);
  NcclSetting setting{.ranks = 2};
  setting.timeout_ns = kNcclSecond / 5;
  const auto outcomes = nccl_outcomes(setting, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    const auto end = mine.device->compute_stream().record();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!end->query() && std::chrono::steady_clock::now() < limit)  // as a driver's call would
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(end->query());
    mine.device->synchronize();
  });
  for (const NcclOutcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_NE(outcome.text.find("all_reduce #0 on tp[2] at nccl_watchdog_test.cpp:"),
              std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("timeout after"), std::string::npos) << outcome.text;
  }
}

// What was waited for before is over on the device; only nobody may ask while a step is recorded.
TEST_F(NcclWatchdog, ARecordingThatLastsLongerThanTheTimeoutIsNoTimeout) {
  NcclSetting setting{.ranks = 2};
  setting.timeout_ns = kNcclSecond / 5;
  on_nccl_ranks(setting, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    const Work work = mine.comm->issue(nccl_sum_of(numbers));
    work.wait();
    while (!work.state()->ready()) std::this_thread::yield();
    {
      const auto recording = mine.device->record_graph();
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      recording->finish();
    }
    mine.host->set_timeout(20 * kNcclSecond);
    mine.host->issue(Collective()).wait();
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
  });
}

}  // namespace
}  // namespace coshard::testing
