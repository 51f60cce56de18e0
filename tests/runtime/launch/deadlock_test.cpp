// Ranks that all wait, and nothing that could wake one: an error at once that says where they
// stand.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/ends.h"

namespace coshard::testing {
namespace {
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::End;
using testing::ends_of;
using testing::quick_options;

// With a deadline that nobody waits for in a test.
WorldOptions patient_options(int ranks) {
  WorldOptions options = quick_options(ranks);
  options.timeout = 60s;
  return options;
}

Collective float_to(CollectiveKind kind, float& value, int peer) {
  Collective c;
  c.kind = kind;
  c.extent = 1;
  c.root = peer;
  if (kind == CollectiveKind::Recv) c.recv = &value;
  if (kind != CollectiveKind::Recv) c.send = &value;
  if (kind == CollectiveKind::AllReduce) c.recv = &value;
  return c;
}

// Runs it, and expects that all ranks end at once with an error that names each of `standings`.
void expect_standstill(int ranks, const Program& program, const std::vector<std::string>& standings,
                       int progress_threads = 0) {
  std::vector<Failure> told;
  WorldOptions options = patient_options(ranks);
  options.progress_threads = progress_threads;
  options.on_failure = [&](const Failure& failure) { told.push_back(failure); };
  std::vector<End> ends(static_cast<std::size_t>(ranks));
  const auto noted = [&](World& world) {
    return testing::note_end(program(world), ends[static_cast<std::size_t>(world.rank())]);
  };
  const auto begin = Clock::now();
  EXPECT_THROW(run_ranks(options, noted), Error);
  EXPECT_LT(Clock::now() - begin, 1s);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].rank, -1);
  for (const std::string& standing : standings)
    EXPECT_NE(told[0].text.find(standing), std::string::npos) << told[0].text;
  for (const End& end : ends) {
    if (!end.failed) continue;  // it had ended before
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names("every rank waits")) << end;
  }
}

std::string at(int line) { return str_cat("deadlock_test.cpp:", line); }

constexpr int kCrossedLine = __LINE__ + 7;
Task<void> cross(World& world) {
  const std::vector<int> both{0, 1};
  const auto other = world.group(both, "tp");
  Communicator* first = world.rank() == 0 ? world.communicator().get() : other.get();
  Communicator* second = world.rank() == 0 ? other.get() : world.communicator().get();
  float a = 1, b = 1;
  const Work one = first->issue(float_to(CollectiveKind::AllReduce, a, 0));
  co_await one;
  const Work two = second->issue(float_to(CollectiveKind::AllReduce, b, 0));
  co_await two;
}

TEST(Deadlock, CollectivesThatAreCrossedOnTwoCommunicators) {
  expect_standstill(2, cross,
                    {"rank 0 waits for all_reduce #0 on world[2] at " + at(kCrossedLine),
                     "rank 1 waits for all_reduce #0 on tp[2] at " + at(kCrossedLine)});
}

Task<void> both_send(World& world) {
  float value = 1;
  const Work send =
      world.communicator()->issue(float_to(CollectiveKind::Send, value, 1 - world.rank()));
  co_await send;
}

TEST(Deadlock, BothSendAndNobodyReceives) {
  expect_standstill(2, both_send, {"each of ranks 0,1 waits for send #0 on world[2] at "});
}

Task<void> cross_in_place(World& world) {
  const std::vector<int> both{0, 1};
  const auto other = world.group(both, "tp");
  Communicator* mine = world.rank() == 0 ? world.communicator().get() : other.get();
  float value = 1;
  const Work work = mine->issue(float_to(CollectiveKind::AllReduce, value, 0));
  if (world.rank() == 0) {
    work.wait();
  } else {
    co_await work;
  }
}

// What can go on is done by helpers, then they sleep too.
Task<void> sum_then_send(World& world) {
  std::vector<float> data(100'000, 1.0F);
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(data.size());
  c.send = c.recv = data.data();
  for (int i = 0; i < 20; ++i) {
    const Work sum = world.communicator()->issue(c);
    co_await sum;
  }
  Task<void> sending = both_send(world);
  co_await std::move(sending);
}

TEST(Deadlock, WithProgressThreads) {
  for (const int helpers : {1, 3}) {
    expect_standstill(2, both_send, {"each of ranks 0,1 waits for send #0 on world[2] at "},
                      helpers);
    expect_standstill(2, sum_then_send, {"each of ranks 0,1 waits for send #0 on world[2] at "},
                      helpers);
  }
}

TEST(Deadlock, OneWaitsInPlace) {
  expect_standstill(2, cross_in_place,
                    {"rank 0 waits in place for all_reduce", "rank 1 waits for all_reduce"});
}

Task<void> one_has_ended(World& world) {
  const std::vector<int> pair{0, 1};
  const auto other = world.group(pair, "tp");
  if (world.rank() == 2) {
    std::this_thread::sleep_for(50ms);  // the others wait
    co_return;
  }
  float value = 1;
  const Work send = other->issue(float_to(CollectiveKind::Send, value, 1 - world.rank()));
  co_await send;
}

TEST(Deadlock, IsFoundWhenTheLastRankThatCouldHelpEnds) {
  expect_standstill(3, one_has_ended, {"each of ranks 0,1 waits for send", "rank 2 has ended"});
}

Task<void> sends(World& world) {
  float value = 1;
  const Work send =
      world.communicator()->issue(float_to(CollectiveKind::Send, value, (world.rank() + 1) % 64));
  co_await send;
}

TEST(Deadlock, OfManyRanks) { expect_standstill(64, sends, {"each of ranks 0,1,2,3,"}); }

// --- no false alarms ---

Task<void> sum(World& world) {
  float value = 1;
  const Work work = world.communicator()->issue(float_to(CollectiveKind::AllReduce, value, 0));
  co_await work;
  EXPECT_EQ(value, static_cast<float>(world.size()));
}

Task<void> one_comes_late(World& world) {
  if (world.rank() == 1) std::this_thread::sleep_for(100ms);
  Task<void> first = sum(world);
  co_await std::move(first);
  if (world.rank() == 1) {
    Task<void> nap = sleep_for(100ms);
    co_await std::move(nap);
  }
  Task<void> second = sum(world);
  co_await std::move(second);
}

TEST(NoStandstill, WhileARankComputesOrSleeps) { run_ranks(patient_options(3), one_comes_late); }

Task<void> a_deadline_ends_the_wait(World& world) {
  const std::shared_ptr<Buffer> memory = world.device()->make_buffer(sizeof(float));
  Collective c;
  c.kind = CollectiveKind::Send;
  c.extent = 1;
  c.root = 1 - world.rank();
  c.send = memory->data();
  c.keep_send = memory;
  const Work send = world.communicator()->issue(std::move(c));
  const auto wait = [&](std::stop_token) -> Task<void> { co_await send; };
  Task<void> bounded = with_deadline(100ms, "send", wait);
  try {
    co_await std::move(bounded);
    ADD_FAILURE() << "nobody has received it";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Timeout) << error.what();
  }
  Task<void> nap = sleep_for(200ms);  // who ends would fail the other's wait
  co_await std::move(nap);
}

TEST(NoStandstill, WhereADeadlineEndsTheWait) {
  run_ranks(patient_options(2), a_deadline_ends_the_wait);
}

// Ranks that wait in all ways, after naps of all lengths.
Task<void> nap_and_sum(World& world, unsigned seed) {
  std::mt19937 random(seed * 64 + static_cast<unsigned>(world.rank()));
  for (int round = 0; round < 4; ++round) {
    float value = 1;
    const Work work = world.communicator()->issue(float_to(CollectiveKind::AllReduce, value, 0));
    const auto nap = std::chrono::microseconds(random() % 300);
    switch (random() % 4) {
      case 0: std::this_thread::sleep_for(nap); break;
      case 1: {
        Task<void> sleep = sleep_for(nap);
        co_await std::move(sleep);
        break;
      }
      default: break;
    }
    if (random() % 2 == 0) {
      work.wait();
    } else {
      co_await work;
    }
    EXPECT_EQ(value, static_cast<float>(world.size()));
  }
}

TEST(NoStandstill, AmongRanksThatNapAtRandom) {
  for (unsigned seed = 0; seed < 200; ++seed)
    run_ranks(patient_options(2 + static_cast<int>(seed % 4)),
              [seed](World& world) { return nap_and_sum(world, seed); });
}

TEST(NoStandstill, AmongBranchesOfRanksThatDoNotNap) {
  for (unsigned seed = 0; seed < 50; ++seed)
    run_ranks(patient_options(3), [](World& world) -> Task<void> {
      Task<void> both = when_all(sum(world), sum(world));
      co_await std::move(both);
    });
}

}  // namespace
}  // namespace coshard::testing
