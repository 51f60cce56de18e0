// Collectives on an emulated link, timed exactly by the virtual clock of their ranks.
#include <gtest/gtest.h>

#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/ends.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using testing::kMicrosecond;
using testing::kMillisecond;
using testing::on_virtual_ranks;
using testing::virtual_now;

constexpr std::int64_t kLatency = 20 * kMicrosecond;
constexpr std::int64_t kElements = 1'000'000;  // bytes, which take a millisecond
constexpr std::int64_t kOnce = kLatency + kMillisecond;

ThreadGroupOptions linked() { return {Link{20, 1'000}}; }

// A collective of one buffer for sending and one for receiving, which live as long as it does.
class Call {
 public:
  Call(CollectiveKind kind, std::int64_t extent, std::int64_t send, std::int64_t recv)
      : send_(static_cast<std::size_t>(send)), recv_(static_cast<std::size_t>(recv)) {
    collective.kind = kind;
    collective.dtype = DType::Bool;
    collective.reduce = Reduce::Max;
    collective.extent = extent;
    collective.send = send_.data();
    collective.recv = recv_.data();
  }
  Collective collective;

 private:
  std::vector<std::int8_t> send_, recv_;
};
Call all_reduce(std::int64_t bytes = kElements) {
  return {CollectiveKind::AllReduce, bytes, bytes, bytes};
}
Call all_gather(int ranks, std::int64_t bytes) {
  return {CollectiveKind::AllGather, bytes, bytes / ranks, bytes};
}

// How long an awaited collective takes.
Task<std::int64_t> time_of(Communicator& communicator, Collective collective) {
  const std::int64_t begin = virtual_now();
  const Work work = communicator.issue(collective);
  co_await work;
  co_return virtual_now() - begin;
}

TEST(Link, ACollectiveTakesTheLatencyAndItsAlgorithmicBytes) {
  constexpr std::int64_t kN = 4, kB = kElements;
  const struct {
    CollectiveKind kind;
    std::int64_t send, recv, bytes;
  } cases[] = {{CollectiveKind::AllReduce, kB, kB, 2 * kB * 3 / 4},
               {CollectiveKind::AllGather, kB / kN, kB, kB * 3 / 4},
               {CollectiveKind::ReduceScatter, kB, kB / kN, kB * 3 / 4},
               {CollectiveKind::Scatter, kB, kB / kN, kB * 3 / 4},
               {CollectiveKind::Broadcast, kB, kB, kB},
               {CollectiveKind::Barrier, 0, 0, 0}};
  for (const auto& c : cases) {
    const auto body = [&](Communicator& communicator) -> Task<void> {
      const Call call(c.kind, kB, c.send, c.recv);
      Task<std::int64_t> timed = time_of(communicator, call.collective);
      const std::int64_t took = co_await std::move(timed);
      EXPECT_EQ(took, kLatency + c.bytes) << to_string(c.kind);
    };
    on_virtual_ranks(kN, linked(), body);
  }
}

TEST(Link, AnAllToAllMovesAllButItsOwnOfARanksBuffer) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    Call call(CollectiveKind::AllToAll, 4, kElements / 4, kElements / 4);
    call.collective.scatter_extent = 4;
    call.collective.inner = kElements / 16;
    Task<std::int64_t> timed = time_of(communicator, call.collective);
    const std::int64_t took = co_await std::move(timed);
    EXPECT_EQ(took, kLatency + kElements / 4 * 3 / 4);
  };
  on_virtual_ranks(4, linked(), body);
}

TEST(Link, ASmallCollectiveThatIsDoneAtOnceTakesItsTimeToo) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const Call call = all_reduce(1000);
    Task<std::int64_t> timed = time_of(communicator, call.collective);
    const std::int64_t took = co_await std::move(timed);
    EXPECT_EQ(took, kLatency + 1000);
  };
  on_virtual_ranks(2, linked(), body);
}

TEST(Link, TimeBeginsWhenTheLastRankHasIssued) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const int rank = communicator.rank();
    if (rank == 1) co_await sleep_for(5ms);
    const Call call = all_reduce();
    Task<std::int64_t> timed = time_of(communicator, call.collective);
    const std::int64_t took = co_await std::move(timed);
    EXPECT_EQ(took, rank == 1 ? kOnce : kOnce + 5 * kMillisecond);
  };
  on_virtual_ranks(2, linked(), body);
}

TEST(Link, WhatRunsMeanwhileHidesIt) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const Call call = all_reduce();
    const Work work = communicator.issue(call.collective);
    co_await sleep_for(3ms);
    const std::int64_t begin = virtual_now();
    while (!work.ready()) {
    }
    co_await work;
    EXPECT_EQ(virtual_now(), begin);
  };
  on_virtual_ranks(2, linked(), body);
}

TEST(Link, IsFirstInFirstOut) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const Call one = all_reduce(), two = all_reduce();
    const std::int64_t begin = virtual_now();
    const Work first = communicator.issue(one.collective);
    const Work second = communicator.issue(two.collective);
    co_await second;
    EXPECT_EQ(virtual_now() - begin, 2 * kOnce);
    EXPECT_TRUE(first.ready());
    co_await first;
    EXPECT_EQ(virtual_now() - begin, 2 * kOnce);
  };
  on_virtual_ranks(2, linked(), body);
}

TEST(Link, TwoCommunicatorsRunBesideEachOther) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const std::vector<int> all{0, 1};
    const auto other = communicator.subgroup(all, "dp");
    const Call one = all_reduce(), two = all_reduce();
    const std::int64_t begin = virtual_now();
    const Work first = communicator.issue(one.collective);
    const Work second = other->issue(two.collective);
    co_await first;
    co_await second;
    EXPECT_EQ(virtual_now() - begin, kOnce);
  };
  on_virtual_ranks(2, linked(), body);
}

TEST(Link, AWaitInPlaceTakesAsLong) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const Call call = all_reduce();
    const std::int64_t begin = virtual_now();
    communicator.issue(call.collective).wait();
    EXPECT_EQ(virtual_now() - begin, kOnce);
    co_return;
  };
  on_virtual_ranks(2, linked(), body);
}

TEST(Link, WhatHangsOnACollectiveBeginsWhenThatIsOver) {
  for (const bool in_place : {false, true}) {
    const auto body = [in_place](Communicator& communicator) -> Task<void> {
      const std::vector<int> all{0, 1};
      const auto other = communicator.subgroup(all, "dp");
      const Call one = all_reduce();
      Call two = all_reduce();
      const std::int64_t begin = virtual_now();
      const Work first = communicator.issue(one.collective);
      two.collective.after = first.state();
      const Work second = other->issue(two.collective);
      if (in_place) {
        second.wait();
      } else {
        co_await second;
      }
      EXPECT_EQ(virtual_now() - begin, 2 * kOnce);
    };
    on_virtual_ranks(2, linked(), body);
  }
}

Task<void> check_parts(Communicator& communicator, bool in_place) {
  constexpr std::int64_t kPart = 1'000'000;
  const int ranks = communicator.size();
  const Call call = all_gather(ranks, ranks * kPart);
  const std::int64_t begin = virtual_now();
  const Work work = communicator.issue(call.collective);
  for (int place = 0; place < ranks; ++place) {
    const int part = (communicator.rank() + place) % ranks;
    if (in_place) {
      work.state()->wait(part);
    } else {
      WorkAwaiter awaiter(work.state(), part);
      co_await awaiter;
    }
    EXPECT_EQ(virtual_now() - begin, place == 0 ? 0 : kLatency + place * kPart) << place;
    const int next = (part + 1) % ranks;
    if (place + 1 < ranks) {
      EXPECT_FALSE(work.state()->ready(next));
    }
  }
  EXPECT_TRUE(work.ready());
}

TEST(Link, PartsOfAnAllGatherComeOneByOneTheOwnFirst) {
  for (const bool in_place : {false, true}) {
    const auto body = [in_place](Communicator& communicator) {
      return check_parts(communicator, in_place);
    };
    on_virtual_ranks(4, linked(), body);
  }
}

TEST(Link, UnevenPartsTakeTheirShareOfTheTime) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const std::vector<std::int64_t> counts{100'000, 0, 200'000, 300'000};
    const int rank = communicator.rank();
    Call call(CollectiveKind::AllGather, 600'000, counts[static_cast<std::size_t>(rank)], 600'000);
    call.collective.counts = std::make_shared<const std::vector<std::int64_t>>(counts);
    const std::int64_t begin = virtual_now();
    const Work work = communicator.issue(call.collective);
    if (rank == 0) {  // 600,000 bytes for all ranks, of which 3/4 pass: 200,000 of 500,000 first
      WorkAwaiter third(work.state(), 2);
      co_await third;
      EXPECT_EQ(virtual_now() - begin, kLatency + 450'000 * 2 / 5);
    }
    co_await work;
    EXPECT_EQ(virtual_now() - begin, kLatency + 450'000);
  };
  on_virtual_ranks(4, linked(), body);
}

TEST(Link, AMessageTakesTheLinkOfItsSender) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const int rank = communicator.rank(), ranks = communicator.size();
    Call send(CollectiveKind::Send, kElements, kElements, 0);
    Call recv(CollectiveKind::Recv, kElements, 0, kElements);
    send.collective.root = (rank + 1) % ranks;
    recv.collective.root = (rank + ranks - 1) % ranks;
    const std::int64_t begin = virtual_now();
    const Work sent = communicator.issue(send.collective);
    const Work received = communicator.issue(recv.collective);
    co_await received;
    co_await sent;
    EXPECT_EQ(virtual_now() - begin, kOnce);
    const Call call = all_reduce(0);  // behind all messages
    const Work last = communicator.issue(call.collective);
    co_await last;
    EXPECT_EQ(virtual_now() - begin, kOnce + kLatency);
  };
  on_virtual_ranks(3, linked(), body);
}

TEST(Link, ADeadlineThatIsShorterIsATimeout) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    const Call call = all_reduce();
    const std::int64_t begin = virtual_now();
    const auto work = [&](std::stop_token) -> Task<void> {
      const Work issued = communicator.issue(call.collective);
      co_await issued;
    };
    Task<void> bounded = with_deadline(100us, "the gradients", work);
    testing::End end;
    Task<void> kept = testing::keep_end(std::move(bounded), end);
    co_await std::move(kept);
    EXPECT_TRUE(end.is(ErrorKind::Timeout) && end.names("the gradients")) << end;
    EXPECT_EQ(virtual_now() - begin, 100 * kMicrosecond);
  };
  on_virtual_ranks(2, linked(), body);
}

TEST(Link, ATimeoutSaysThatTheLinkIsBusy) {
  const auto body = [](Communicator& communicator) -> Task<void> {
    communicator.set_timeout(100 * kMicrosecond);
    const Call call = all_reduce();
    Task<std::int64_t> timed = time_of(communicator, call.collective);
    co_await std::move(timed);
  };
  testing::End end;
  try {
    on_virtual_ranks(2, linked(), body);
  } catch (...) {
    end = testing::end_of(std::current_exception());
  }
  EXPECT_TRUE(end.names("its emulated link is busy for another 920 us")) << end;
}

// A wait that looks at the clock twice must not sleep when its time comes between the two.
TEST(Link, WaitsOfAFewMicrosecondsAreNeverSleptThrough) {
  WorldOptions options;
  options.link = Link{3, 1'000};
  options.timeout = 20s;
  const auto program = [](World& world) -> Task<void> {
    const Collective barrier;
    for (int i = 0; i < 5000; ++i) {
      world.communicator()->issue(barrier).wait();
      const Work work = world.communicator()->issue(barrier);
      co_await work;
    }
  };
  run_ranks(options, program);
}

TEST(Link, OfAWorldIsOnTheRanksOwnClock) {
  WorldOptions options;
  options.link = Link{2'000, 1'000};
  const auto program = [](World& world) -> Task<void> {
    const Call call = all_reduce();
    const std::int64_t begin = now_ns();
    const Work work = world.communicator()->issue(call.collective);
    co_await work;
    EXPECT_GE(now_ns() - begin, 3 * kMillisecond);
  };
  run_ranks(options, program);
}

}  // namespace
}  // namespace coshard::testing
