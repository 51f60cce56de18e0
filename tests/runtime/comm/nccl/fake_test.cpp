// What the fake NCCL refuses: each is a mistake of a program, made on purpose, by NCCL's own calls.
#include <thread>

#include "runtime/comm/nccl/nccl_api.h"
#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

ncclConfig_t config_of(int blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  return config;
}

// A communicator of this thread alone.
ncclComm_t alone(int blocking) {
  ncclUniqueId id{};
  EXPECT_EQ(nccl().GetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = config_of(blocking);
  nccl().CommInitRankConfig(&comm, 1, id, 0, &config);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) nccl().CommGetAsyncError(comm, &state);
  EXPECT_EQ(state, ncclSuccess);
  return comm;
}

bool heard(const ExpectNcclComplaints& complaints, const std::string& text) {
  for (const std::string& one : complaints.heard())
    if (one.find(text) != std::string::npos) return true;
  return false;
}

TEST(FakeNccl, AChildIsThereOnlyWhenTheSplitIsOver) {
  ncclComm_t parent = alone(0), child = nullptr;
  ncclConfig_t config = config_of(0);
  EXPECT_EQ(nccl().CommSplit(parent, 0, 0, &child, &config), ncclInProgress);
  EXPECT_EQ(child, nullptr);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) nccl().CommGetAsyncError(parent, &state);
  ASSERT_NE(child, nullptr);
  nccl().CommAbort(child);
  nccl().CommAbort(parent);
}

TEST(FakeNccl, ACallWhileTheCommunicatorIsInProgressIsRefused) {
  const ExpectNcclComplaints complaints;
  ncclComm_t parent = alone(0), child = nullptr, second = nullptr;
  ncclConfig_t config = config_of(0);
  nccl().CommSplit(parent, 0, 0, &child, &config);
  EXPECT_EQ(nccl().CommSplit(parent, 0, 0, &second, &config), ncclInvalidArgument);
  EXPECT_TRUE(heard(complaints, "ncclCommSplit while the communicator is in progress"));
  nccl().CommAbort(parent);
}

// The caller has put something else there before the call is over.
TEST(FakeNccl, WhatIsGivenBackTooEarlyIsNotStoredInto) {
  const ExpectNcclComplaints complaints;
  ncclComm_t comm = alone(0), child = nullptr;
  ncclConfig_t config = config_of(0);
  std::uintptr_t memory = 0;
  float data[4];
  auto* slot = reinterpret_cast<ncclWindow_t*>(&memory);
  nccl().CommWindowRegister(comm, data, sizeof data, slot, NCCL_WIN_COLL_SYMMETRIC);
  memory = 42;
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) nccl().CommGetAsyncError(comm, &state);
  EXPECT_EQ(memory, 42U);
  EXPECT_TRUE(heard(complaints, "ncclCommWindowRegister stores into memory that its caller has"));
  nccl().CommSplit(comm, 0, 0, &child, &config);
  child = reinterpret_cast<ncclComm_t>(&memory);
  for (state = ncclInProgress; state == ncclInProgress;) nccl().CommGetAsyncError(comm, &state);
  EXPECT_TRUE(heard(complaints, "ncclCommSplit stores into memory that its caller has"));
  nccl().CommAbort(comm);
}

TEST(FakeNccl, TwoThreadsInsideOneCommunicatorAreRefused) {
  const ExpectNcclComplaints complaints;
  ncclUniqueId id{};
  nccl().GetUniqueId(&id);
  ncclComm_t first = nullptr;
  std::thread waits([&] {
    ncclConfig_t config = config_of(1);
    EXPECT_NE(nccl().CommInitRankConfig(&first, 2, id, 0, &config), ncclSuccess);
  });
  while (__atomic_load_n(&first, __ATOMIC_ACQUIRE) == nullptr) std::this_thread::yield();
  float data = 0;
  const auto add = [&] {
    return nccl().AllReduce(&data, &data, 1, ncclFloat32, ncclSum, first, nullptr);
  };
  while (!heard(complaints, "another thread is inside")) EXPECT_NE(add(), ncclSuccess);
  // The abort by another thread is what lets it go.
  EXPECT_EQ(nccl().CommAbort(first), ncclSuccess);
  waits.join();
  EXPECT_EQ(add(), ncclInvalidArgument);
  EXPECT_TRUE(heard(complaints, "on a communicator that is gone"));
}

}  // namespace
}  // namespace coshard::testing
