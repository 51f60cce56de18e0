// What observers are told: names of collectives, kernels that begin and end, and when a rank stood
// still for a collective, by the virtual clock of ranks on an emulated link.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/observer.h>
#include "tests/support/nanoseconds.h"
#include "tests/support/virtual_ranks.h"

namespace coshard {
namespace {
using namespace std::chrono_literals;
using testing::compute_for;
using testing::kMillisecond;
using testing::virtual_now;

TEST(ObserverCalls, EveryCollectiveHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int k = 0; k <= static_cast<int>(CollectiveKind::Recv); ++k)
    names.insert(to_string(static_cast<CollectiveKind>(k)));
  EXPECT_EQ(names.size(), 9U);
  EXPECT_EQ(to_string(CollectiveKind::ReduceScatter), "reduce_scatter");
}

TEST(ObserverCalls, AKernelEndsAlsoWhenItFails) {
  struct Seen final : Observer {
    void computing(std::string_view op, ComputeClass, const DescribeInputs& inputs) override {
      begun += op;
      worked_on = inputs();
    }
    void computed(std::string_view op, ComputeClass what, std::int64_t begin,
                  std::int64_t end) override {
      ended += op;
      in_order = begin <= end && what == ComputeClass::Gemm;
    }
    std::string begun, ended, worked_on;
    bool in_order = false;
  } seen;
  EXPECT_THROW(
      {
        const auto device = make_cpu_device(1);
        const Computing matmul(seen, *device, "matmul", ComputeClass::Gemm,
                               [] { return "f32[2,3]"; });
        EXPECT_EQ(seen.worked_on, "f32[2,3]");
        EXPECT_EQ(seen.begun, "matmul");
        EXPECT_EQ(seen.ended, "");
        throw 1;
      },
      int);
  EXPECT_EQ(seen.ended, "matmul");
  EXPECT_TRUE(seen.in_order);
}

// The rank's times, in ms since it began.
struct TimesOfWaits final : Observer {
  using Times = std::vector<std::pair<std::int64_t, std::int64_t>>;
  void issued(const CommEvent&, std::int64_t now) override { issues.push_back(ms(now)); }
  void awaiting(const CommEvent&) override { ++awaits; }
  void stalled(const CommEvent&, std::int64_t begin, std::int64_t end) override {
    if (begin < end) blocked.emplace_back(ms(begin), ms(end));
  }
  void ready(const CommEvent&, std::int64_t begin, std::int64_t done, std::int64_t now) override {
    if (begin < now) blocked.emplace_back(ms(begin), ms(now));
    flights.emplace_back(issues.back(), ms(done));
  }
  void computed(std::string_view, ComputeClass, std::int64_t begin, std::int64_t end) override {
    kernels.emplace_back(ms(begin), ms(end));
  }
  static std::int64_t ms(std::int64_t at) { return (at - kBegin) / kMillisecond; }

  static constexpr std::int64_t kBegin = 1'000'000'000;  // of virtual time
  std::vector<std::int64_t> issues;
  Times blocked, flights, kernels;
  int awaits = 0;
};
using Times = TimesOfWaits::Times;

Task<void> sleep_and_compute(std::chrono::nanoseconds sleep, std::chrono::nanoseconds compute) {
  co_await sleep_for(sleep);
  compute_for(compute);
}

Task<void> awaited(const Work& work) { co_await work; }

// On two ranks, a link over which 1 MB takes 20 ms + 100 ms, or half of it 20 ms + 50 ms.
using WaitingRank = std::function<Task<void>(Communicator&, TimesOfWaits&)>;
void on_watched_ranks(const WaitingRank& body) {
  const auto watched = [&](Communicator& communicator) -> Task<void> {
    TimesOfWaits times;
    communicator.observe(std::make_shared<Observer*>(&times));
    Task<void> run = body(communicator, times);
    co_await std::move(run);
    communicator.observe(nullptr);
  };
  testing::on_virtual_ranks(2, {Link{20'000, 10}}, watched);
}

struct OverTheLink {
  OverTheLink(CollectiveKind kind, std::size_t bytes)
      : send(kind == CollectiveKind::AllGather ? bytes / 2 : bytes), recv(bytes) {
    call.kind = kind;
    call.dtype = DType::Bool;
    call.reduce = Reduce::Max;
    call.extent = static_cast<std::int64_t>(bytes);
    call.send = send.data();
    call.recv = recv.data();
  }
  std::vector<std::int8_t> send, recv;
  Collective call;
};

TEST(ObserverTimes, AreThoseOfTheRanksClock) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    co_await sleep_for(10ms);
    const Work work = communicator.issue(sum.call);
    {
      const auto device = make_cpu_device(1);
      const Computing kernel(times, *device, "matmul", ComputeClass::Gemm, nullptr);
      compute_for(30ms);
    }
    co_await work;
    EXPECT_EQ(times.kernels, (Times{{10, 40}}));
    EXPECT_EQ(times.flights, (Times{{10, 130}}));
    EXPECT_EQ(times.blocked, (Times{{40, 130}}));
  });
}

// The first part is the rank's own; the other one is there when all of it is.
Task<void> await_the_parts(const Work& work, std::chrono::nanoseconds compute) {
  for (const int part : {0, 1}) {
    co_await WorkAwaiter(work.state(), part);
    compute_for(compute);
  }
  co_await work;
}

TEST(ObserverTimes, TellOfWaitsForEachPart) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink gather(CollectiveKind::AllGather, 1'000'000);
    const Work work = communicator.issue(gather.call);
    Task<void> parts = await_the_parts(work, 10ms);
    co_await std::move(parts);
    EXPECT_EQ(times.flights, (Times{{0, 70}}));
    const bool first = communicator.rank() == 0;  // the other's own part is the second
    EXPECT_EQ(times.blocked, first ? (Times{{10, 70}}) : (Times{{0, 70}}));
  });
}

TEST(ObserverTimes, TellOfWaitsInPlaceForEachPart) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink gather(CollectiveKind::AllGather, 1'000'000);
    const Work work = communicator.issue(gather.call);
    work.state()->wait(1 - communicator.rank());
    EXPECT_EQ(times.blocked, (Times{{0, 70}}));
    work.wait();
    EXPECT_EQ(times.blocked, (Times{{0, 70}}));
    co_return;
  });
}

// The part is there before the whole, which this rank does not wait for until it has computed.
TEST(ObserverTimes, TellOfAWaitForAPartThatDoesNotEndTheCollective) {
  testing::on_virtual_ranks(3, {Link{0, 10}}, [](Communicator& communicator) -> Task<void> {
    TimesOfWaits times;
    communicator.observe(std::make_shared<Observer*>(&times));
    std::vector<std::int8_t> send(300'000), recv(900'000);
    Collective gather;
    gather.kind = CollectiveKind::AllGather;
    gather.dtype = DType::Bool;
    gather.extent = 900'000;
    gather.send = send.data();
    gather.recv = recv.data();
    const Work work = communicator.issue(gather);
    co_await WorkAwaiter(work.state(), (communicator.rank() + 1) % 3);
    compute_for(10ms);
    co_await work;
    EXPECT_EQ(times.flights, (Times{{0, 60}}));
    EXPECT_EQ(times.blocked, (Times{{0, 30}, {40, 60}}));
    communicator.observe(nullptr);
  });
}

TEST(ObserverTimes, DoNotCountAsBlockedWhatASiblingComputes) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    const Work work = communicator.issue(sum.call);
    co_await when_all(awaited(work), sleep_and_compute(10ms, 30ms), sleep_and_compute(60ms, 40ms));
    EXPECT_EQ(times.flights, (Times{{0, 120}}));
    EXPECT_EQ(times.blocked, (Times{{0, 10}, {40, 60}, {100, 120}}));
    EXPECT_EQ(times.awaits, 3);
  });
}

TEST(ObserverTimes, EndWithASiblingThatComputesForLonger) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    const Work work = communicator.issue(sum.call);
    co_await when_all(awaited(work), sleep_and_compute(50ms, 150ms));
    EXPECT_EQ(times.flights, (Times{{0, 120}}));
    EXPECT_EQ(times.blocked, (Times{{0, 50}}));
  });
}

// Fills a send buffer, once it may: as a copy does that a collective depends on. It takes 20 ms.
struct SlowStep final : WorkState {
  Poll poll(Poller, int) override {
    if (!std::exchange(may_begin, false)) return over ? Poll::Done : Poll::Pending;
    compute_for(20ms);
    over = true;
    return Poll::Done;
  }
  void wait(int) override {}
  std::string failure() const override { return ""; }
  bool may_begin = false, over = false;
};

Task<void> begin_after(SlowStep& step, std::chrono::nanoseconds time) {
  co_await sleep_for(time);
  step.may_begin = true;
}

TEST(ObserverTimes, CountTheHelpOfAnAwaitsFirstPoll) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    const auto step = std::make_shared<SlowStep>();
    sum.call.after = step;
    const Work work = communicator.issue(sum.call);
    step->may_begin = true;
    co_await work;
    EXPECT_EQ(times.flights, (Times{{0, 140}}));
    EXPECT_EQ(times.blocked, (Times{{0, 140}}));
  });
}

TEST(ObserverTimes, CountTheHelpAfterASiblingHasRun) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    const auto step = std::make_shared<SlowStep>();
    sum.call.after = step;
    const Work work = communicator.issue(sum.call);
    co_await when_all(awaited(work), begin_after(*step, 10ms));
    EXPECT_EQ(times.blocked, (Times{{0, 10}, {10, 150}}));
  });
}

// Of what one await waits for together, a part that is there already is not stood still for.
TEST(ObserverTimes, AreNoneOfWhatWasThereBefore) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000);
    const OverTheLink other(CollectiveKind::AllReduce, 1'000);
    const Work first = communicator.issue(sum.call), second = communicator.issue(other.call);
    co_await sleep_for(30ms);
    WorkStates both;
    for (const Work* work : {&first, &second}) both.push_back(work->state());
    co_await WorkAwaiter(std::move(both));
    EXPECT_EQ(times.blocked, (Times{{30, 40}}));
  });
}

Task<void> fails(const Work& work, std::chrono::nanoseconds most, bool in_place) {
  const WaitLimit limit(most);
  try {
    if (in_place) work.wait();
    co_await work;
    ADD_FAILURE() << "it takes longer";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Timeout);
  }
}

TEST(ObserverTimes, CountAWaitThatFails) {
  for (const bool in_place : {false, true})
    testing::on_virtual_ranks(2, {}, [&](Communicator& communicator) -> Task<void> {
      if (communicator.rank() == 1) co_return co_await sleep_for(1s);  // it issues nothing
      TimesOfWaits times;
      communicator.observe(std::make_shared<Observer*>(&times));
      const OverTheLink sum(CollectiveKind::AllReduce, 1'000);
      const Work work = communicator.issue(sum.call);
      compute_for(10ms);
      Task<void> failed = fails(work, 30ms, in_place);
      co_await std::move(failed);
      EXPECT_EQ(times.blocked, (Times{{10, 40}})) << in_place;
      EXPECT_TRUE(times.flights.empty());
      communicator.observe(nullptr);
    });
}

// All that the await waits for, not only what failed.
TEST(ObserverTimes, CountAllOfAnAwaitThatFails) {
  testing::on_virtual_ranks(2, {}, [&](Communicator& communicator) -> Task<void> {
    if (communicator.rank() == 1) co_return co_await sleep_for(1s);
    TimesOfWaits times;
    communicator.observe(std::make_shared<Observer*>(&times));
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000);
    const OverTheLink other(CollectiveKind::AllReduce, 1'000);
    const Work first = communicator.issue(sum.call), second = communicator.issue(other.call);
    WorkStates both;
    for (const Work* work : {&first, &second}) both.push_back(work->state());
    try {
      const WaitLimit limit(30ms);
      co_await WorkAwaiter(std::move(both));
      ADD_FAILURE() << "nobody takes part";
    } catch (const Error&) {
    }
    EXPECT_EQ(times.blocked, (Times{{0, 30}, {0, 30}}));
    communicator.observe(nullptr);
  });
}

TEST(ObserverTimes, OfAnAwaitThatWasGivenUpEndThere) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    const Work work = communicator.issue(sum.call);
    try {
      co_await with_deadline(30ms, "short", [&](std::stop_token) { return awaited(work); });
      ADD_FAILURE() << "it took 120 ms";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Timeout);
    }
    EXPECT_EQ(times.blocked, (Times{{0, 30}}));
    compute_for(50ms);
    co_await work;
    EXPECT_EQ(times.blocked, (Times{{0, 30}, {80, 120}}));
  });
}

TEST(ObserverTimes, OfAWaitOutOfOrderAreThoseOfTheRankToo) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    const Work work = communicator.issue(sum.call);
    const auto as_it_arrives = [&]() -> Task<void> { co_await as_it_comes(work); };
    co_await when_all(as_it_arrives(), sleep_and_compute(10ms, 30ms));
    EXPECT_EQ(times.blocked, (Times{{0, 10}, {40, 120}}));
  });
}

// The rank stands still for the head of its queue; the others behind it are not waited for yet.
TEST(ObserverTimes, OfSiblingsFollowEachOther) {
  on_watched_ranks([](Communicator& communicator, TimesOfWaits& times) -> Task<void> {
    const OverTheLink sum(CollectiveKind::AllReduce, 1'000'000);
    const OverTheLink other(CollectiveKind::AllReduce, 1'000'000);
    const Work first = communicator.issue(sum.call), second = communicator.issue(other.call);
    co_await when_all(awaited(first), awaited(second));
    EXPECT_EQ(times.blocked, (Times{{0, 120}, {120, 240}}));
  });
}

}  // namespace
}  // namespace coshard
