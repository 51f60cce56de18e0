#include <coshard/runtime/coro/when_all.h>

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/coro/counted.h"

namespace coshard {
namespace {

using Log = std::vector<std::string>;

Task<int> steps(Log& log, std::string name, int count) {
  for (int i = 0; i < count; ++i) {
    log.push_back(name + std::to_string(i));
    co_await yield();
  }
  co_return count;
}
Task<void> fails_after(Log& log, std::string name, int count) {
  Task<int> before = steps(log, name, count);
  co_await std::move(before);
  throw std::runtime_error(name);
}

Task<int> sum_of_three() {
  Log log;
  Task<int> a = steps(log, "a", 0);
  Task<int> b = steps(log, "b", 2);
  Task<int> c = steps(log, "c", 1);
  auto [x, y, z] = co_await when_all(std::move(a), std::move(b), std::move(c));
  co_return 100 * x + 10 * y + z;
}

TEST(WhenAll, ReturnsTheValuesInTheOrderOfTheTasks) { EXPECT_EQ(sync_wait(sum_of_three()), 21); }

Task<void> no_value() { co_return; }
Task<std::unique_ptr<int>> boxed_value(int value) {
  co_await yield();
  co_return std::make_unique<int>(value);
}

TEST(WhenAll, MixesVoidAndMoveOnlyValues) {
  auto [none, box] = sync_wait(when_all(no_value(), boxed_value(5)));
  static_assert(std::is_same_v<decltype(none), std::monostate>);
  EXPECT_EQ(*box, 5);
  static_assert(std::is_same_v<decltype(when_all(no_value(), no_value())), Task<void>>);
}

TEST(WhenAll, StartsTheNextTaskWhenOneYieldsAndThenTakesTurns) {
  Log log;
  sync_wait(when_all(steps(log, "a", 3), steps(log, "b", 1), steps(log, "c", 2)));
  EXPECT_EQ(log, (Log{"a0", "b0", "c0", "a1", "c1", "a2"}));
}

Task<void> nested(Log& log) {
  Task<int> outer = steps(log, "x", 2);
  Task<int> inner_a = steps(log, "a", 2);
  Task<int> inner_b = steps(log, "b", 2);
  auto inner = when_all(std::move(inner_a), std::move(inner_b));
  auto all = when_all(std::move(inner), std::move(outer));
  co_await std::move(all);
}

TEST(WhenAll, GivesFirstTurnsInTheOrderInWhichTheJoinsWereMade) {
  Log log;
  sync_wait(nested(log));
  EXPECT_EQ(log, (Log{"x0", "a0", "b0", "x1", "a1", "b1"}));
}

TEST(WhenAll, CancelsTheOthersAndThrowsWhatFailedFirst) {
  Log log;
  std::string thrown;
  try {
    sync_wait(
        when_all(fails_after(log, "late", 2), fails_after(log, "early", 0), steps(log, "c", 3)));
  } catch (const std::runtime_error& error) {
    thrown = error.what();
  }
  EXPECT_EQ(thrown, "early");
  EXPECT_EQ(log, (Log{"late0", "c0"}));
}

TEST(WhenAllSettled, LetsTheOthersEndAndThenThrowsTheFirstByPosition) {
  Log log;
  std::string thrown;
  try {
    sync_wait(when_all_settled(fails_after(log, "late", 2), fails_after(log, "early", 0),
                               steps(log, "c", 3)));
  } catch (const std::runtime_error& error) {
    thrown = error.what();
  }
  EXPECT_EQ(thrown, "late");
  EXPECT_EQ(log, (Log{"late0", "c0", "late1", "c1", "c2"}));
}

TEST(WhenAll, TakesAVectorOfTasks) {
  Log log;
  std::vector<Task<int>> tasks;
  for (int i = 0; i < 20; ++i) tasks.push_back(steps(log, "t", i));
  const std::vector<int> counts = sync_wait(when_all(std::move(tasks)));
  ASSERT_EQ(counts.size(), 20U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(counts[static_cast<std::size_t>(i)], i);
}

TEST(WhenAll, OfAnEmptyVectorIsDoneAtOnce) {
  EXPECT_TRUE(sync_wait(when_all(std::vector<Task<int>>())).empty());
  sync_wait(when_all(std::vector<Task<void>>()));
}

TEST(WhenAllSettled, OfAVectorOfVoidTasksThrowsTheFirstByPosition) {
  Log log;
  std::vector<Task<void>> tasks;
  tasks.push_back(no_value());
  tasks.push_back(fails_after(log, "one", 1));
  tasks.push_back(fails_after(log, "two", 0));
  Task<void> all = when_all_settled(std::move(tasks));
  try {
    sync_wait(std::move(all));
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "one");
  }
}

Task<void> hold(testing::Counted parameter) {
  const testing::Counted local = parameter;
  co_await std::suspend_always{};
}

TEST(WhenAll, DroppedWhileItsChildrenAreSuspendedDestroysThem) {
  testing::Counts counts;
  {
    Task<void> all = when_all(hold(testing::Counted(counts)), hold(testing::Counted(counts)));
    all.handle().resume();
    EXPECT_GE(counts.alive(), 4);
  }
  EXPECT_EQ(counts.alive(), 0);
}

Task<void> many_joins(int count) {
  for (int i = 0; i < count; ++i) {
    auto both = when_all(no_value(), no_value());
    co_await std::move(both);
  }
}
Task<void> yields() { co_await yield(); }
Task<void> many_yielding_joins(int count) {
  for (int i = 0; i < count; ++i) {
    auto both = when_all(yields(), yields());
    co_await std::move(both);
  }
}

TEST(WhenAll, LongLoopsOfJoinsNeedNoStack) {
  sync_wait(many_joins(200'000));
  sync_wait(many_yielding_joins(200'000));
}

}  // namespace
}  // namespace coshard
