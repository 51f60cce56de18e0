// What observers are told of a device's streams, and when: with events whose times the test sets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/device/stream_times.h"

namespace coshard {
namespace {

struct Stamp final : Event {
  explicit Stamp(std::optional<std::int64_t> at = std::nullopt) : at(at) {}
  bool query() const override { return at.has_value(); }
  void synchronize(std::int64_t) override {}
  bool timed() const override { return has_clock; }
  std::optional<std::int64_t> reached_ns() const override { return at; }
  std::optional<std::int64_t> at;
  bool has_clock = true;
};

std::shared_ptr<Stamp> stamp(std::optional<std::int64_t> at = std::nullopt) {
  return std::make_shared<Stamp>(at);
}

struct Told final : Observer {
  void ran(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
    add("ran", event, begin, end);
  }
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override {
    add("stalled", event, begin, end);
  }
  void queued(std::uint64_t kernel) override {
    lines.push_back("queued " + std::to_string(kernel));
  }
  void kernel_ran(std::uint64_t kernel, std::int64_t begin, std::int64_t end) override {
    CommEvent event;
    event.id = kernel;
    add("kernel", event, begin, end);
  }
  void add(const std::string& what, const CommEvent& event, std::int64_t begin, std::int64_t end) {
    lines.push_back(what + " " + std::to_string(event.id) + std::string(event.communicator) +
                    std::string(event.label) + " " + std::to_string(begin) + ".." +
                    std::to_string(end));
  }
  std::vector<std::string> lines;
};
using Lines = std::vector<std::string>;

class StreamTimesTest : public ::testing::Test {
 protected:
  StreamTimesTest() { times.observe(slot); }
  CommEvent event(std::uint64_t id) {
    CommEvent made;
    made.id = id;
    return made;
  }
  Told told;
  ObserverSlot slot = std::make_shared<Observer*>(&told);
  StreamTimes times;
};

TEST_F(StreamTimesTest, AreToldInOrderOnceTheDeviceIsPastThem) {
  const auto end = stamp();
  times.stalled(event(1), stamp(10), end);
  times.ran(event(1), stamp(5), end);
  times.kernel(stamp(1), stamp(2));
  times.tell();
  EXPECT_EQ(told.lines, Lines{"queued 1"});
  end->at = 20;
  times.tell();
  times.tell();
  EXPECT_EQ(told.lines, (Lines{"queued 1", "stalled 1 10..20", "ran 1 5..20", "kernel 1 1..2"}));
}

TEST_F(StreamTimesTest, AWaitForWhatHadEndedTakesNoTime) {
  times.stalled(event(1), stamp(30), stamp(20));
  times.tell();
  EXPECT_EQ(told.lines, Lines{"stalled 1 30..30"});
}

// The clock may take another reference between the two.
TEST_F(StreamTimesTest, NothingEndsBeforeItBegins) {
  times.ran(event(1), stamp(30), stamp(29));
  times.kernel(stamp(40), stamp(39));
  times.tell();
  EXPECT_EQ(told.lines, (Lines{"queued 1", "ran 1 30..30", "kernel 1 40..40"}));
}

TEST_F(StreamTimesTest, WhatIsNotTimedIsNotTold) {
  const auto untimed = stamp(3);
  untimed->has_clock = false;
  times.ran(event(1), untimed, stamp(4));
  times.ran(event(2), stamp(4), nullptr);
  times.kernel(untimed, stamp(4));
  times.kernel(stamp(4), stamp(5));
  times.tell();
  EXPECT_EQ(told.lines, (Lines{"queued 1", "kernel 1 4..5"}));
}

TEST_F(StreamTimesTest, ADeviceThatIsGoneHoldsUpNobody) {
  const auto end = stamp();
  times.ran(event(1), stamp(5), end);
  times.ran(event(2), stamp(6), stamp(7));
  end->has_clock = false;
  times.tell();
  EXPECT_EQ(told.lines, Lines{"ran 2 6..7"});
}

TEST_F(StreamTimesTest, TextsOutliveTheirOwners) {
  const auto end = stamp();
  {
    const std::string communicator = "a communicator of a long name", label = " for something long";
    CommEvent made = event(1);
    made.communicator = communicator;
    made.label = label;
    times.ran(made, stamp(5), end);
  }
  end->at = 6;
  times.tell();
  EXPECT_EQ(told.lines, Lines{"ran 1a communicator of a long name for something long 5..6"});
}

TEST_F(StreamTimesTest, AskWithoutAHostWaitOnceThereAreMany) {
  for (std::uint64_t i = 0; i < 63; ++i) times.ran(event(i), stamp(1), stamp(2));
  EXPECT_TRUE(told.lines.empty());
  times.ran(event(63), stamp(1), stamp(2));
  EXPECT_EQ(told.lines.size(), 64U);
}

TEST_F(StreamTimesTest, NobodyIsToldOnceTheObserverHasLeft) {
  times.ran(event(1), stamp(1), stamp(2));
  *slot = nullptr;
  times.ran(event(2), stamp(1), stamp(2));
  times.kernel(stamp(1), stamp(2));
  times.tell();
  *slot = &told;
  times.tell();
  EXPECT_TRUE(told.lines.empty());
}

}  // namespace
}  // namespace coshard
