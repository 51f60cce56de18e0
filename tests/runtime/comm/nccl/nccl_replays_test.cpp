// Graphs with operations of a communicator: NCCL's abort, finalize and destroy wait until none is
// left (commDestroySync, init.cc, localPersistentRefs), so whoever gives up a communicator ends its
// graphs first.
#include "runtime/comm/nccl/nccl_replays.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/device/graph.h"
#include "tests/runtime/comm/nccl/nccl_ranks.h"

namespace coshard::testing {
namespace {

class NcclGraphs : public ::testing::Test {
 protected:
  void TearDown() override { FakeDriver::get().clear_faults(); }
};

// A graph of one all_reduce, after one that is none: its connections are made.
std::unique_ptr<DeviceGraph> graph_of_a_sum(NcclRank& mine, const NcclNumbers& numbers) {
  mine.comm->issue(nccl_sum_of(numbers)).wait();
  mine.device->synchronize();
  mine.host->issue(Collective()).wait();
  const auto recording = mine.device->record_graph();
  mine.comm->issue(nccl_sum_of(numbers)).wait();
  return recording->finish();
}

void expect_not_left_behind(const std::string& text) {
  EXPECT_EQ(text.find("is abandoned"), std::string::npos) << text;
}

TEST_F(NcclGraphs, AnAbortWaitsForThemInTheFake) {
  ncclUniqueId id{};
  nccl().GetUniqueId(&id);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  ASSERT_EQ(nccl().CommInitRankConfig(&comm, 1, id, 0, &config), ncclSuccess);
  const auto device = make_cuda_device({});
  const auto data = device->make_buffer(sizeof(float));
  auto recording = graph_device(*device)->record_graph();
  auto* stream = static_cast<cudaStream_t>(device->compute_stream().native());
  EXPECT_EQ(nccl().AllReduce(data->data(), data->data(), 1, ncclFloat32, ncclSum, comm, stream),
            ncclSuccess);
  auto graph = recording->finish();
  std::atomic<bool> over{false};
  std::thread aborts([&] {
    nccl().CommAbort(comm);
    over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(over.load());
  graph.reset();
  aborts.join();
}

TEST_F(NcclGraphs, ACommunicatorThatGoesFirstEndsThem) {
  ::testing::internal::CaptureStderr();
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    const auto graph = graph_of_a_sum(mine, numbers);
    graph->launch();
    mine.device->synchronize();
    EXPECT_EQ(numbers.get(), (std::vector<float>{4, 8}));
    mine.host->issue(Collective()).wait();
    mine.comm.reset();
    mine.device->synchronize();
    const NcclOutcome outcome = outcome_of([&] { graph->launch(); });
    EXPECT_NE(outcome.text.find("a communicator it uses was destroyed"), std::string::npos)
        << outcome.text;
  });
  expect_not_left_behind(::testing::internal::GetCapturedStderr());
}

// A graph runs on the compute stream, not on the communicator's own: its end counts, too.
TEST_F(NcclGraphs, ACommunicatorThatGoesOrSplitsWaitsForALaunchInFlight) {
  for (const bool splits : {false, true}) {
    ::testing::internal::CaptureStderr();
    const ExpectNcclComplaints complaints;
    NcclSetting setting{.ranks = 2};
    setting.options.abort_grace = std::chrono::milliseconds(200);
    on_nccl_ranks(setting, [splits](NcclRank& mine) {
      const NcclNumbers numbers(mine, {1, 2});
      const auto graph = graph_of_a_sum(mine, numbers);
      if (mine.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
      graph->launch();
      if (splits) mine.comm->split(std::vector<int>{0, 1}, "child");
      mine.comm.reset();
      EXPECT_EQ(numbers.get(), (std::vector<float>{4, 8}));
    });
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(complaints.heard(), std::vector<std::string>());
  }
}

TEST_F(NcclGraphs, AFailureEndsThem) {
  ::testing::internal::CaptureStderr();
  const auto outcomes = nccl_outcomes({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    const auto graph = graph_of_a_sum(mine, numbers);
    graph->launch();
    mine.device->synchronize();
    mine.host->issue(Collective()).wait();
    if (mine.rank == 1) mine.comm->poison("rank 1 has had enough");
    for (int i = 0; i < 1000; ++i) {
      graph->launch();
      mine.device->synchronize();
    }
  });
  for (const NcclOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_NE(outcome.text.find("rank 1 has had enough"), std::string::npos) << outcome.text;
    expect_not_left_behind(outcome.text);
  }
  expect_not_left_behind(::testing::internal::GetCapturedStderr());
}

// The recording is the failing thread's own, which cannot wait for an abort that waits for it.
TEST_F(NcclGraphs, AFailureWithinARecordingDoesNotWaitForIt) {
  ::testing::internal::CaptureStderr();
  const auto outcomes = nccl_outcomes({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
    mine.host->issue(Collective()).wait();
    const auto recording = mine.device->record_graph();
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    if (mine.rank == 1) mine.comm->poison("rank 1 has had enough");
    for (int i = 0; i < 1000; ++i) {  // for longer than the watchdog needs to look
      mine.comm->issue(nccl_sum_of(numbers)).wait();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  for (const NcclOutcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_NE(outcome.text.find("rank 1 has had enough"), std::string::npos) << outcome.text;
    expect_not_left_behind(outcome.text);
  }
  expect_not_left_behind(::testing::internal::GetCapturedStderr());
}

// Each rank records two graphs; `other` launches the second one where the others launch the first.
TEST_F(NcclGraphs, ADifferenceInALaunchNamesTheLaunchAndTheCollective) {
  for (const int ranks : {2, 4})
    for (int other = 0; other < ranks; ++other) {
      const auto outcomes = nccl_outcomes({.ranks = ranks}, [other](NcclRank& mine) {
        const NcclNumbers numbers(mine, {1, 2}), more(mine, {1, 2, 3});
        const auto first = graph_of_a_sum(mine, numbers);
        const auto second = graph_of_a_sum(mine, more);
        (mine.rank == other ? second : first)->launch();
        mine.device->synchronize();
      });
      for (const NcclOutcome& outcome : outcomes) {
        EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
        for (const char* text : {"a launch of 1 recorded collectives", "collective 1 of the graph",
                                 "all_reduce sum f32 [2]", "all_reduce sum f32 [3]"})
          EXPECT_NE(outcome.text.find(text), std::string::npos) << outcome.text;
      }
    }
}

TEST_F(NcclGraphs, AnotherRecordingOfEqualCollectivesIsADifference) {
  const auto outcomes = nccl_outcomes({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    const auto first = graph_of_a_sum(mine, numbers);
    const auto second = graph_of_a_sum(mine, numbers);
    first->launch();
    second->launch();
    (mine.rank == 1 ? second : first)->launch();
    for (int i = 0; i < 1000; ++i) {  // for longer than the watchdog needs to look
      first->launch();
      mine.device->synchronize();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  for (const NcclOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("the collectives of both graphs are equal"), std::string::npos)
        << outcome.text;
  }
}

TEST_F(NcclGraphs, ALaunchIsAnnouncedAsOneCollective) {
  on_nccl_ranks({.ranks = 2}, [](NcclRank& mine) {
    const NcclNumbers numbers(mine, {1, 2});
    mine.comm->issue(nccl_sum_of(numbers)).wait();
    mine.device->synchronize();
    mine.host->issue(Collective()).wait();
    const auto recording = mine.device->record_graph();
    for (int i = 0; i < 3; ++i) mine.comm->issue(nccl_sum_of(numbers)).wait();
    const auto graph = recording->finish();
    const std::uint64_t before = mine.comm->issued();
    for (int i = 0; i < 5; ++i) graph->launch();
    mine.device->synchronize();
    EXPECT_EQ(mine.comm->issued(), before + 5);
  });
}

}  // namespace
}  // namespace coshard::testing
