// Work that follows a collective: done once, by whoever needs it first.
#include <gtest/gtest.h>

#include "dtensor/redistribute/follow_up.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;

// Over when it is told so.
class Before final : public WorkState {
 public:
  Poll poll(Poller, int) override { return over ? Poll::Done : Poll::Pending; }
  void wait(int) override { over = true; }
  void note(WorkEvent event) override { given_ups += event == WorkEvent::Abandoned ? 1 : 0; }
  std::string describe() const override { return "the one before"; }
  bool over = false;
  int given_ups = 0;
};

TEST(FollowUpOf, IsDoneOnceWhenTheOneBeforeIsOver) {
  const auto before = std::make_shared<Before>();
  int done = 0;
  FollowUp after(before, [&] { ++done; });
  EXPECT_FALSE(after.ready());
  EXPECT_EQ(after.poll(Poller::AnyThread, WorkState::kAll), Poll::Pending);
  EXPECT_EQ(after.describe(), "the one before");
  EXPECT_EQ(done, 0);
  before->over = true;
  EXPECT_EQ(after.poll(Poller::AnyThread, WorkState::kAll), Poll::Done);
  after.wait(WorkState::kAll);
  EXPECT_TRUE(after.ready());
  EXPECT_EQ(done, 1);
}

TEST(FollowUpOf, AWaitWaitsForTheOneBeforeAndNothingBeforeIsNoWait) {
  const auto before = std::make_shared<Before>();
  int done = 0;
  FollowUp after(before, [&] { ++done; });
  after.wait(WorkState::kAll);
  EXPECT_TRUE(before->over);
  EXPECT_EQ(done, 1);
  FollowUp alone(nullptr, [&] { ++done; });
  EXPECT_TRUE(alone.ready());
  EXPECT_EQ(done, 2);
}

TEST(FollowUpOf, WhatItThrowsIsThrownByEachWaitAndIsItsFailure) {
  FollowUp after(nullptr, [] { fail(ErrorKind::BadInput, "no room"); });
  EXPECT_EQ(after.failure(), "");
  EXPECT_THROW(after.wait(WorkState::kAll), Error);
  EXPECT_THROW(after.wait(WorkState::kAll), Error);
  EXPECT_NE(after.failure().find("no room"), std::string::npos);
}

TEST(FollowUpOf, TellsTheOneBeforeThatItWasGivenUpUnlessThatIsUnnoted) {
  const auto before = std::make_shared<Before>();
  FollowUp noted(before, [] {}), unnoted(
                                     before, [] {}, GivenUp::Unnoted);
  noted.note(WorkEvent::Abandoned);
  EXPECT_EQ(before->given_ups, 1);
  unnoted.note(WorkEvent::Abandoned);
  EXPECT_EQ(before->given_ups, 1);
}

// A rank that sleeps on it and on other work need not poll.
TEST(FollowUpOf, NothingIsOverAndNeedsNoPolling) {
  int done = 0;
  FollowUp step(nullptr, [&] { ++done; });
  EXPECT_TRUE(step.subscribe(RankContext::current().parker()));
  step.unsubscribe(RankContext::current().parker());
  EXPECT_EQ(step.poll(Poller::Await, WorkState::kAll), Poll::Done);
  EXPECT_EQ(step.describe(), "a local step");
  step.wait(WorkState::kAll);
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace coshard
