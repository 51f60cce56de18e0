// The local communicator on devices: what a missing order between streams would do, and what
// becomes of ranks whose device fails.
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "runtime/device/cuda/api.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

using coshard::testing::FakeDriver;
using coshard::testing::Fault;
using coshard::testing::right_of;

constexpr int kSeeds = 30;

class NoFaults {
 public:
  ~NoFaults() {
    FakeDriver::get().clear_faults();
    FakeDriver::get().set_peer_access(true);
  }
};

// Exchanges whose results say which order was lost: in place, by parts, and with sends that are
// written anew as soon as their work was waited for.
bool exchange(std::size_t size) {
  std::atomic<bool> right{true};
  const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
    Floats sum(size, static_cast<float>(rank + 1)), whole(2 * size);
    const Work summed = comm.issue(sum_of(sum));
    summed.wait();
    Collective gather;
    gather.kind = CollectiveKind::AllGather;
    gather.extent = whole.size();
    gather.send = sum.data();
    gather.recv = whole.data();
    gather.keep_send = sum.buffer();
    const Work gathered = comm.issue(gather);
    for (int part = 0; part < 2; ++part) gathered.state()->wait(part);
    gathered.wait();
    for (std::int64_t i = 0; i < sum.size(); ++i) sum[i] = -1;
    sum.put();
    whole.get();
    for (std::int64_t i = 0; i < whole.size(); ++i) right = right && whole[i] == 3;
  });
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
  return right;
}

// Read as soon as its work was waited for, by which nothing else stands.
bool reduced(std::size_t size) {
  std::atomic<bool> right{true};
  const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
    Floats sum(size, static_cast<float>(rank + 1));
    comm.issue(sum_of(sum)).wait();
    sum.get();
    for (std::int64_t i = 0; i < sum.size(); ++i) right = right && sum[i] == 3;
  });
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
  return right;
}

// How often `program` is wrong over seeds when one call of the name does nothing. The race that it
// was to prevent is named, too.
int wrong_without(const char* call, const std::function<bool()>& program) {
  int wrong = 0, named = 0;
  for (int skipped = 0; skipped < 6; ++skipped)
    wrong += kSeeds - right_of(kSeeds, [&] {
               Fault fault;
               fault.call = call;
               fault.after = skipped;
               fault.skipped = true;
               FakeDriver::get().set_fault(fault);
               const bool right = program();
               FakeDriver::get().clear_faults();
               const auto said = FakeDriver::get().take_complaints();
               named += !said.empty() && said[0].starts_with("race: ") ? 1 : 0;
               return right;
             });
  EXPECT_GT(named, 0) << call;
  return wrong;
}

class ExchangeOf : public ::testing::TestWithParam<std::size_t> {};

TEST_P(ExchangeOf, IsRightInEveryOrder) {
  EXPECT_EQ(right_of(kSeeds, [] { return exchange(GetParam()); }), kSeeds);
}

TEST_P(ExchangeOf, NeedsItsWaitsForEvents) {
  const NoFaults after;
  EXPECT_GT(wrong_without("StreamWaitEvent", [] { return exchange(GetParam()); }), 0);
  EXPECT_EQ(right_of(kSeeds, [] { return reduced(GetParam()); }), kSeeds);
  EXPECT_GT(wrong_without("StreamWaitEvent", [] { return reduced(GetParam()); }), 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ExchangeOf,
                         ::testing::Values(std::size_t{8}, std::size_t{100'000}));

// A rank drops its work and its buffer, and takes memory of that size anew.
bool drop_a_send(bool kept) {
  std::atomic<bool> right{true};
  const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
    Floats got(8UL);
    Collective c;
    c.kind = CollectiveKind::Broadcast;
    c.extent = 8;
    c.recv = got.put();
    {
      Floats sent(8UL, 5.0F);
      if (rank == 0) c.send = sent.put();
      if (rank == 0 && kept) c.keep_send = sent.buffer();
      const Work work = comm.issue(std::exchange(c, Collective()));
      if (rank == 1) work.wait();
    }
    Floats next(8UL, 50.0F);
    next.put();
    if (rank == 1) right = got.get()[7] == 5;
  });
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
  return right;
}

// Kept memory stays behind the dropped work; for memory that is not ours its destructor waits.
TEST(LocalOnDevices, ABufferOfADroppedWorkHandleStaysUntilItsPeersHaveRead) {
  EXPECT_EQ(right_of(kSeeds, [] { return drop_a_send(true); }), kSeeds);
  EXPECT_EQ(right_of(kSeeds, [] { return drop_a_send(false); }), kSeeds);
}

// Both ranks add up and wait for it on the host, with a deadline; `fault` comes when they have met.
// What is stuck goes on at the end, so that nothing is left in a queue when the memory is freed.
std::vector<Outcome> add_up(const Fault* fault = nullptr) {
  return outcomes_on_ranks(2, [fault](Communicator& comm, int rank) {
    comm.issue(Collective()).wait();
    if (fault != nullptr && rank == 1) FakeDriver::get().set_fault(*fault);
    comm.set_timeout(kSecond / 5);
    device_here()->set_timeout(kSecond / 2);
    Floats data(8UL, 1.0F);
    try {
      wait_on_host(comm.issue(sum_of(data)));
    } catch (const Error&) {
      FakeDriver::get().clear_faults();
      throw;
    }
    EXPECT_EQ(data.get()[7], 2);
  });
}

int failed(const std::vector<Outcome>& outcomes) {
  int count = 0;
  for (const Outcome& outcome : outcomes) count += outcome.failed ? 1 : 0;
  return count;
}

TEST(LocalOnDevices, ADeviceThatDoesNotComeToTheCollectiveIsNamed) {
  const NoFaults after;
  Fault fault;
  fault.call = "EventRecord";
  fault.stuck = true;
  fault.device = 1;
  const auto outcomes = add_up(&fault);
  ASSERT_GE(failed(outcomes), 1);  // the other one goes on when the fault is cleared
  bool named = false;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.failed) continue;
    EXPECT_TRUE(outcome.kind == ErrorKind::Timeout || outcome.kind == ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("all_reduce #1"), std::string::npos) << outcome.text;
    named =
        named || outcome.text.find("not reached on its stream: 1 (cuda:1)") != std::string::npos;
  }
  EXPECT_TRUE(named) << outcomes[0].text;
  FakeDriver::get().clear_faults();
  EXPECT_EQ(failed(add_up()), 0);
}

TEST(LocalOnDevices, DevicesOutOfReachAreNamed) {
  const NoFaults after;
  FakeDriver::get().set_peer_access(false);
  const auto outcomes = add_up();
  ASSERT_EQ(failed(outcomes), 2);
  int unsupported = 0;
  for (const Outcome& outcome : outcomes) {
    unsupported += outcome.kind == ErrorKind::Unsupported;
    EXPECT_NE(outcome.text.find("has no peer access to cuda:"), std::string::npos) << outcome.text;
  }
  EXPECT_EQ(unsupported, 1);
  FakeDriver::get().set_peer_access(true);
  EXPECT_EQ(failed(add_up()), 0);
}

class FailingCall : public ::testing::TestWithParam<const char*> {};

TEST_P(FailingCall, FailsAllRanksWithItsErrorAndTheNextRunWorks) {
  const NoFaults after;
  FakeDriver::get().reset_counts();
  ASSERT_EQ(failed(add_up()), 0);
  const auto calls = FakeDriver::get().calls(GetParam());
  ASSERT_GT(calls, 0U);
  for (std::uint64_t n = 0; n < std::min<std::uint64_t>(calls, 8); ++n) {
    Fault fault;
    fault.call = GetParam();
    fault.after = static_cast<int>(n);
    fault.error = cudaErrorLaunchFailure;
    FakeDriver::get().set_fault(fault);
    const auto outcomes = add_up();
    FakeDriver::get().clear_faults();
    EXPECT_GE(failed(outcomes), 1);
    bool named = false;
    for (const Outcome& outcome : outcomes)
      named = named || outcome.text.find("cudaErrorLaunchFailure") != std::string::npos;
    EXPECT_TRUE(named) << outcomes[0].text << " | " << outcomes[1].text;
    // What had been queued of the collective by then is in no order with what frees its memory.
    FakeDriver::get().take_complaints();
    EXPECT_EQ(failed(add_up()), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, FailingCall,
                         ::testing::Values("EventRecord", "StreamWaitEvent", "Launch"),
                         [](const auto& info) { return std::string(info.param); });

// A driver may do that at any first launch and at any allocation: cuda.h, cuStreamWaitValue64.
TEST(LocalOnDevices, ARankMayWaitForTheWholeDeviceWhileItsPeerWaitsForIt) {
  FakeDriver::get().set_devices(1);
  std::atomic<bool> issued{false};
  const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
    comm.set_timeout(5 * kSecond);
    Floats data(8UL, 1.0F);
    if (rank == 1) {
      while (!issued) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(cuda().DeviceSynchronize(), cudaSuccess);
    }
    const Work work = comm.issue(sum_of(data));
    issued = true;
    work.wait();
    EXPECT_EQ(data.get()[7], 2);
  });
  FakeDriver::get().set_devices(2);
  EXPECT_EQ(failed(outcomes), 0) << outcomes[0].text << " | " << outcomes[1].text;
  EXPECT_EQ(FakeDriver::get().complaints(), std::vector<std::string>());
}

TEST(LocalOnDevices, AFailedRankFailsTheWaitsOfTheOthers) {
  const auto outcomes = outcomes_on_ranks(3, [](Communicator& comm, int rank) {
    Floats data(8UL, 1.0F);
    if (rank == 2) {
      comm.poison("the disk is full");
      return;
    }
    for (int i = 0; i < 3; ++i) comm.issue(sum_of(data)).wait();
    data.get();
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].kind, ErrorKind::CommFailed);
    EXPECT_NE(outcomes[static_cast<std::size_t>(rank)].text.find("the disk is full"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace coshard::testing
