// Who counts as asleep, and when all do.
#include "runtime/coro/deadlock_detector.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace coshard::testing {
namespace {

struct Asked {
  std::vector<int> woken;
  std::vector<std::string> standstills;
  DeadlockDetector deadlock_detector{
      [this](int rank) { woken.push_back(rank); },
      [this](const std::string& all) { standstills.push_back(all); }};
};

TEST(DeadlockDetector, AsksAllWhenTheLastFallsAsleep) {
  Asked asked;
  WaiterState& a = asked.deadlock_detector.add(0);
  WaiterState& b = asked.deadlock_detector.add(1);
  a.prepare_wait();
  EXPECT_TRUE(a.fall_asleep());
  EXPECT_TRUE(asked.woken.empty());
  b.prepare_wait();
  EXPECT_TRUE(b.fall_asleep());
  EXPECT_EQ(asked.woken, (std::vector<int>{0, 1}));
  EXPECT_TRUE(a.asked());
  a.report("waits for x");
  EXPECT_FALSE(a.asked());
  EXPECT_TRUE(asked.standstills.empty());
  b.report("waits for y");
  EXPECT_EQ(asked.standstills,
            (std::vector<std::string>{"rank 0 waits for x; rank 1 waits for y"}));
}

TEST(DeadlockDetector, WhoIsRungIsAwakeBeforeItHasNoticed) {
  Asked asked;
  WaiterState& a = asked.deadlock_detector.add(0);
  WaiterState& b = asked.deadlock_detector.add(1);
  a.prepare_wait();
  EXPECT_TRUE(a.fall_asleep());
  a.unparked();
  b.prepare_wait();
  EXPECT_TRUE(b.fall_asleep());
  EXPECT_TRUE(asked.woken.empty());
  a.wake();  // what the wake-up has counted is not counted twice
  a.prepare_wait();
  EXPECT_TRUE(a.fall_asleep());
  EXPECT_EQ(asked.woken.size(), 2U);
}

TEST(DeadlockDetector, WhoIsRungWhileItDozesDoesNotFallAsleep) {
  Asked asked;
  WaiterState& a = asked.deadlock_detector.add(0);
  a.prepare_wait();
  a.unparked();
  EXPECT_FALSE(a.fall_asleep());
  a.prepare_wait();
  EXPECT_TRUE(a.fall_asleep());
  EXPECT_EQ(asked.woken, std::vector<int>{0});
}

TEST(DeadlockDetector, AHelperCountsAndIsNotAsked) {
  Asked asked;
  WaiterState& a = asked.deadlock_detector.add(0);
  WaiterState& helper = asked.deadlock_detector.add_helper();
  a.prepare_wait();
  EXPECT_TRUE(a.fall_asleep());
  EXPECT_TRUE(asked.woken.empty());
  helper.prepare_wait();
  EXPECT_TRUE(helper.fall_asleep());
  EXPECT_EQ(asked.woken, std::vector<int>{0});
  a.report("waits");
  EXPECT_EQ(asked.standstills, std::vector<std::string>{"rank 0 waits"});
}

TEST(DeadlockDetector, WhoHasLeftNeitherCountsNorAnswers) {
  Asked asked;
  WaiterState& a = asked.deadlock_detector.add(0);
  WaiterState& b = asked.deadlock_detector.add(1);
  WaiterState& c = asked.deadlock_detector.add(2);
  a.prepare_wait();
  EXPECT_TRUE(a.fall_asleep());
  b.prepare_wait();
  EXPECT_TRUE(b.fall_asleep());
  asked.deadlock_detector.leave(c);
  EXPECT_EQ(asked.woken, (std::vector<int>{0, 1}));
  a.report("waits");
  asked.deadlock_detector.leave(b);
  EXPECT_EQ(asked.standstills,
            (std::vector<std::string>{"rank 0 waits; each of ranks 1,2 has ended"}));
}

TEST(DeadlockDetector, OfRanksThatHaveAllLeftSaysNothing) {
  Asked asked;
  WaiterState& a = asked.deadlock_detector.add(0);
  WaiterState& b = asked.deadlock_detector.add(1);
  asked.deadlock_detector.leave(a);
  asked.deadlock_detector.leave(b);
  EXPECT_TRUE(asked.woken.empty());
  EXPECT_TRUE(asked.standstills.empty());
}

// A park that ends by itself: what a stale wake-up does now and then, each time.
class RestlessParker final : public Parker {
 public:
  void park(std::int64_t, boost::asio::io_context*) override { std::this_thread::yield(); }
  void unpark() noexcept override {}
  std::int64_t now() const override { return 0; }
  bool shares_its_thread() const override { return false; }
};

// Two ranks that wake each other in turn, never both asleep; the ranks that were asked.
std::vector<int> asked_in_turns(Parker& bed_a, Parker& bed_b, int rounds) {
  Asked asked;
  CountedParker a(bed_a), b(bed_b);
  WaiterState& of_a = asked.deadlock_detector.add(0);
  WaiterState& of_b = asked.deadlock_detector.add(1);
  a.count(&of_a);
  b.count(&of_b);
  std::atomic<int> turn{0};
  const auto play = [&](int mine, CountedParker& own, WaiterState& waiter_state,
                        CountedParker& other) {
    for (int round = 0; round < rounds; ++round) {
      while (turn.load() % 2 != mine) {
        IdleScope nap(&waiter_state);
        if (turn.load() % 2 != mine && nap.begin()) own.park(0, nullptr);
        nap.end([] { return std::string(); });
      }
      turn.fetch_add(1);
      other.unpark();
    }
    asked.deadlock_detector.leave(waiter_state);
  };
  std::thread peer([&] { play(1, b, of_b, a); });
  play(0, a, of_a, b);
  peer.join();
  return asked.woken;
}

TEST(DeadlockDetector, GivesNoFalseAlarmBetweenRanksThatWakeEachOther) {
  ThreadParker a, b;
  EXPECT_EQ(asked_in_turns(a, b, 20'000), std::vector<int>());
}

TEST(DeadlockDetector, GivesNoFalseAlarmWhereASleeperWakesBeforeItsRingerIsThrough) {
  RestlessParker a, b;
  EXPECT_EQ(asked_in_turns(a, b, 400'000), std::vector<int>());
}

}  // namespace
}  // namespace coshard::testing
