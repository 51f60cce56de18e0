// An error at every call, an event that never comes, an abort that never returns, peers that are
// late, gone, or mean something else: a typed error that names it, in time, and the process goes
// on.
#include <atomic>
#include <chrono>

#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

class NcclFailure : public ::testing::Test {
 protected:
  void TearDown() override { FakeDriver::get().clear_faults(); }
};

// Uses every call that a program makes.
void use_all(NcclRank& mine) {
  const NcclNumbers numbers(mine, {1, 2, 3, 4}), more(mine, {0, 0, 0, 0});
  mine.comm->issue(nccl_sum_of(numbers)).wait();
  Collective c = nccl_sum_of(numbers);
  c.recv = more.buffer->data();
  c.keep_recv = more.buffer;
  c.extent = 2;
  const auto issue = [&](CollectiveKind kind) {
    c.kind = kind;
    mine.comm->issue(c).wait();
  };
  issue(CollectiveKind::Broadcast);
  c.extent = 4;
  issue(CollectiveKind::AllGather);
  issue(CollectiveKind::ReduceScatter);
  c.counts = std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{0, 4});
  issue(CollectiveKind::ReduceScatter);
  c.counts = nullptr;
  c.send_counts = c.recv_counts =
      std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{2, 2});
  issue(CollectiveKind::AllToAll);
  mine.device->synchronize();
}

TEST_F(NcclFailure, AnErrorAtAnyCallIsATypedErrorThatNamesIt) {
  for (const char* name :
       {"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclAllReduce",
        "ncclBroadcast", "ncclAllGather", "ncclReduceScatter", "ncclReduce", "ncclSend", "ncclRecv",
        "ncclGroupStart", "ncclGroupEnd"}) {
    Fault fault;
    fault.call = name;
    fault.error = ncclSystemError;
    FakeDriver::get().set_fault(fault);
    const auto outcomes = nccl_outcomes({.ranks = 2}, use_all);
    FakeDriver::get().clear_faults();
    int naming = 0;
    for (const NcclOutcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.failed) << name;
      EXPECT_EQ(outcome.kind, ErrorKind::CommFailed) << outcome.text;
      naming += outcome.text.find(name) != std::string::npos &&
                outcome.text.find("ncclSystemError") != std::string::npos;
    }
    EXPECT_GE(naming, 1) << name << ": " << outcomes[0].text;
  }
  on_nccl_ranks({.ranks = 2}, use_all);  // the process can go on
}

// What newer libraries have: a split, a window, and what goes by the copy engines.
void use_newer(NcclRank& mine) {
  const auto all = mine.comm->split(std::vector<int>{0, 1}, "all");
  all->issue(nccl_sum_of(NcclNumbers(mine, {1, 2}))).wait();
  const auto window = mine.comm->symmetric_buffer(4096);
  Collective c;
  c.kind = CollectiveKind::AllToAll;
  c.extent = c.scatter_extent = 2;
  c.send = static_cast<float*>(window->data()) + 64;
  c.recv = window->data();
  c.keep_send = c.keep_recv = window;
  mine.comm->issue(c).wait();
  mine.device->synchronize();
}

TEST_F(NcclFailure, AnErrorAtACallOfNewerLibrariesIsATypedErrorThatNamesIt) {
  NcclSetting setting{.ranks = 2};
  setting.options.copy_engine = true;
  for (const char* name :
       {"ncclCommSplit", "ncclMemAlloc", "ncclCommWindowRegister", "ncclAlltoAll"}) {
    Fault fault;
    fault.call = name;
    fault.error = ncclSystemError;
    FakeDriver::get().set_fault(fault);
    const auto outcomes = nccl_outcomes(setting, use_newer);
    FakeDriver::get().clear_faults();
    int naming = 0;
    for (const NcclOutcome& outcome : outcomes) {
      ASSERT_TRUE(outcome.failed) << name;
      naming += outcome.text.find(name) != std::string::npos &&
                outcome.text.find("ncclSystemError") != std::string::npos;
    }
    EXPECT_GE(naming, 1) << name << ": " << outcomes[0].text << "; " << outcomes[1].text;
  }
  on_nccl_ranks(setting, use_newer);
}

// What the frames of a call that has failed leave behind is used by others.
void use_the_stack() {
  volatile char bytes[1 << 14];
  for (auto& byte : bytes) byte = 0x5a;
}

// The split's child and the window are stored by NCCL, maybe only after the call has failed here.
TEST_F(NcclFailure, AnErrorWhileItIsSplitOrMakesAWindowLeavesNcclNothingDeadToWriteTo) {
  const auto before = FakeDriver::get().complaints();
  for (int round = 0; round < 20; ++round) {
    NcclSetting setting{.ranks = 2};
    setting.options.copy_engine = true;
    setting.timeout_ns = kNcclSecond;
    nccl_outcomes(setting, [round](NcclRank& mine) {
      mine.host->issue(Collective()).wait();
      if (mine.rank == 0)
        FakeDriver::get().set_fault({.call = "ncclCommGetAsyncError", .error = ncclInternalError});
      mine.host->issue(Collective()).wait();
      (void)outcome_of([&] {
        if (round % 2 == 0)
          (void)mine.comm->split(std::vector<int>{0, 1}, "all");
        else
          (void)mine.comm->symmetric_buffer(64);
      });
      use_the_stack();
    });
    FakeDriver::get().clear_faults();
  }
  EXPECT_EQ(FakeDriver::get().complaints(), before);
}

TEST_F(NcclFailure, AnErrorWhileItIsTakenDownDoesNotThrow) {
  FakeDriver& driver = FakeDriver::get();
  driver.reset_counts();
  driver.set_fault({.call = "ncclCommFinalize", .error = ncclSystemError});
  on_nccl_ranks({.ranks = 2}, use_all);
  driver.clear_faults();
  EXPECT_GT(driver.calls("ncclCommAbort"), 0U);  // what cannot be finalized is aborted
  driver.set_fault({.call = "ncclCommDestroy", .error = ncclSystemError});
  ::testing::internal::CaptureStderr();
  on_nccl_ranks({.ranks = 2}, use_all);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("ncclCommDestroy: ncclSystemError"), std::string::npos) << said;
  driver.clear_faults();
  on_nccl_ranks({.ranks = 2}, use_all);
}

TEST_F(NcclFailure, AnErrorWhenItIsAskedHowItIsIsFound) {
  for (int after : {0, 5}) {
    Fault fault;
    fault.call = "ncclCommGetAsyncError";
    fault.error = ncclInternalError;
    fault.after = after;
    FakeDriver::get().set_fault(fault);
    const auto outcomes = nccl_outcomes({.ranks = 2}, [](NcclRank& mine) {
      for (int i = 0; i < 100; ++i) use_all(mine);
    });
    FakeDriver::get().clear_faults();
    for (const NcclOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.kind, ErrorKind::CommFailed) << outcome.text;
      EXPECT_NE(outcome.text.find("ncclInternalError"), std::string::npos) << outcome.text;
    }
  }
}

TEST_F(NcclFailure, AnErrorOfTheLibraryEndsTheWaitsOfAllRanksWithItsText) {
  set_fake_nccl_async_error(1, ncclRemoteError, 2);
  const auto outcomes = nccl_outcomes({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    for (int i = 0; i < 5; ++i) mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
  });
  for (const NcclOutcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("ncclRemoteError"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("all_reduce #"), std::string::npos) << outcome.text;
  }
}

TEST_F(NcclFailure, AnEventThatNeverComesIsATimeoutThatSaysThatAllHaveCalled) {
  Fault fault;
  fault.call = "ncclAllReduce";
  fault.stuck = true;
  fault.after = 1;
  FakeDriver::get().set_fault(fault);
  NcclSetting setting{.ranks = 2};
  setting.timeout_ns = kNcclSecond / 5;
  const auto outcomes = nccl_outcomes(setting, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
  });
  int timeouts = 0;
  for (const NcclOutcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.failed);
    timeouts += outcome.kind == ErrorKind::Timeout;
    EXPECT_NE(outcome.text.find("all_reduce #0 on tp[2] at nccl_failure_test.cpp:"),
              std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("all ranks have issued it"), std::string::npos) << outcome.text;
  }
  EXPECT_GE(timeouts, 1);
}

TEST_F(NcclFailure, APeerThatDoesNotComeIsNamed) {
  std::atomic<bool> over{false};
  NcclSetting setting{.ranks = 2};
  setting.timeout_ns = kNcclSecond / 5;
  const auto outcomes = nccl_outcomes(setting, [&](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
    if (mine.rank == 1) {
      while (!over.load()) std::this_thread::yield();
      return;
    }
    const Work work = mine.comm->issue(nccl_sum_of(numbers));
    const NcclOutcome outcome = outcome_of([&] {
      work.wait();
      mine.device->synchronize();
    });
    over = true;
    EXPECT_EQ(outcome.kind, ErrorKind::Timeout) << outcome.text;
    EXPECT_NE(outcome.text.find("missing: 1 (last issued #0 all_reduce "), std::string::npos)
        << outcome.text;
    // Later waits fail at once, with the first cause.
    const NcclOutcome later = outcome_of([&] { mine.comm->issue(nccl_sum_of(numbers)).wait(); });
    EXPECT_EQ(later.kind, ErrorKind::CommFailed);
    EXPECT_NE(later.text.find("missing: 1"), std::string::npos) << later.text;
  });
  for (const NcclOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
}

TEST_F(NcclFailure, AMissingRankOfFourIsNamedOnAllOthers) {
  for (int missing = 0; missing < 4; ++missing) {
    std::atomic<int> over{0};
    NcclSetting setting{.ranks = 4};
    setting.timeout_ns = kNcclSecond;
    const auto outcomes = nccl_outcomes(setting, [&](NcclRank& mine) {
      const NcclNumbers numbers(mine, {1, 2});
      mine.comm->issue(nccl_sum_of(numbers)).wait();
      mine.device->synchronize();
      if (mine.rank == missing) {
        while (over.load() < 3) std::this_thread::yield();
        return;
      }
      const NcclOutcome outcome = outcome_of([&] {
        mine.comm->issue(nccl_sum_of(numbers)).wait();
        mine.device->synchronize();
      });
      ++over;
      EXPECT_TRUE(outcome.failed);
      EXPECT_NE(outcome.text.find(str_cat("missing: ", missing, " (last issued #0 all_reduce ")),
                std::string::npos)
          << outcome.text;
    });
    for (const NcclOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
  }
}

TEST_F(NcclFailure, APeerThatLeftIsNamedAtOnce) {
  NcclSetting setting{.ranks = 2};
  const auto outcomes = nccl_outcomes(setting, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
    if (mine.rank == 1) return;
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
  });
  EXPECT_FALSE(outcomes[1].failed) << outcomes[1].text;
  EXPECT_EQ(outcomes[0].kind, ErrorKind::CommFailed);
  EXPECT_NE(outcomes[0].text.find("rank 1 left the program after #0"), std::string::npos)
      << outcomes[0].text;
}

TEST_F(NcclFailure, RanksThatDisagreeAllHearOfBothCalls) {
  const auto outcomes = nccl_outcomes({.ranks = 3}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2, 3});
    Collective c = nccl_sum_of(numbers);
    if (mine.rank == 2) c.kind = CollectiveKind::Broadcast;
    mine.comm->issue(c).wait();
    mine.device->synchronize();
  });
  for (const NcclOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    for (const char* call :
         {"calls all_reduce sum f32 [3] in branch main at nccl_failure_test.cpp:",
          "rank 2 calls broadcast f32 [3] from 0 in branch main at nccl_failure_"}) {
      EXPECT_NE(outcome.text.find(call), std::string::npos) << outcome.text;
    }
  }
}

TEST_F(NcclFailure, ADifferenceInTheLastCollectiveEndsTheProgram) {
  for (const int ranks : {2, 4})
    for (int odd = 0; odd < ranks; ++odd) {
      const auto outcomes = nccl_outcomes({.ranks = ranks}, [odd](NcclRank& mine) {
        const NcclNumbers numbers(mine, {1, 2, 3, 4});
        for (int i = 0; i < 3; ++i) mine.comm->issue(nccl_sum_of(numbers)).wait();
        Collective last = nccl_sum_of(numbers);
        const std::vector<std::int64_t> shape = {mine.rank == odd ? 4 : 2,
                                                 mine.rank == odd ? 1 : 2};
        last.shape = std::make_shared<const std::vector<std::int64_t>>(shape);
        mine.comm->issue(std::move(last)).wait();
        mine.device->synchronize();
        mine.device->settle();
      });
      const NcclOutcome& its = outcomes[static_cast<std::size_t>(odd)];
      EXPECT_TRUE(its.failed) << odd << " of " << ranks;
      EXPECT_EQ(its.kind, ErrorKind::CommFailed);
    }
}

TEST_F(NcclFailure, PoisonEndsTheWaitsOfAllRanksWithTheFirstCause) {
  const std::size_t before = fake_nccl_communicators();
  const auto outcomes = nccl_outcomes({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1});
    if (mine.rank == 1) {
      mine.comm->poison("the disk is full");
      mine.comm->poison("and so is the glass");
    }
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
  });
  for (const NcclOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("the disk is full"), std::string::npos) << outcome.text;
  }
  EXPECT_EQ(fake_nccl_communicators(), before);
}

TEST_F(NcclFailure, AnAbortThatNeverReturnsIsLeftBehindAndTheErrorSaysSo) {
  for (const char* call : {"ncclCommAbort", "ncclCommRevoke"}) {
    Fault never;
    never.call = call;
    never.stuck = true;
    never.times = 2;
    FakeDriver::get().set_fault(never);
    Fault error;
    error.call = "ncclAllReduce";
    error.error = ncclSystemError;
    FakeDriver::get().set_fault(error);
    NcclSetting setting{.ranks = 2};
    setting.options.abort_grace = std::chrono::milliseconds(50);
    const auto outcomes = nccl_outcomes(setting, [](NcclRank& mine) {
      const NcclNumbers numbers(mine, {1});
      mine.comm->issue(nccl_sum_of(numbers)).wait();
      mine.device->synchronize();
    });
    for (const NcclOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
      EXPECT_NE(outcome.text.find("ncclAllReduce: ncclSystemError"), std::string::npos)
          << outcome.text;
      EXPECT_NE(outcome.text.find("has not returned after 50 ms; its thread is abandoned"),
                std::string::npos)
          << outcome.text;
    }
    FakeDriver::get().clear_faults();
  }
}

TEST_F(NcclFailure, AFailedGroupLeavesTheOthersUsable) {
  const auto outcomes = nccl_outcomes({.ranks = 2}, [](NcclRank& mine) {
    const std::vector<int> both{0, 1};
    const auto group = mine.comm->subgroup(both, "dp");
    mine.host->issue(Collective()).wait();  // until both have it: a poisoned one cannot be made
    group->poison("enough");
    const NcclNumbers numbers(mine, {1, 2});
    EXPECT_TRUE(outcome_of([&] { group->issue(nccl_sum_of(numbers)).wait(); }).failed);
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    EXPECT_EQ(numbers.get(), (std::vector<float>{2, 4}));
  });
  for (const NcclOutcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
}

TEST_F(NcclFailure, ABadArgumentIsRefusedAndTakesNoWork) {
  on_nccl_ranks({.ranks = 1}, [](NcclRank& mine) {
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.extent = 4;
    EXPECT_EQ(outcome_of([&] { (void)mine.comm->issue(c); }).kind, ErrorKind::BadInput);
    EXPECT_EQ(mine.comm->issued(), 0U);
  });
}

}  // namespace
}  // namespace coshard::testing
