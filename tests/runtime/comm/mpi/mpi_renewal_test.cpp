#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/mpi/mpi_engine.h"
#include "tests/support/fake_mpi.h"

namespace coshard::mpi_renewal {
namespace {

using testing::FakeMpi;
using Values = std::vector<int>;

constexpr std::size_t kLong = 10'000, kShort = 10;  // sent once a receive is posted, and at once

struct Two {
  explicit Two(std::uint64_t seed) : mpi(2, seed), a(mpi.api(0)), b(mpi.api(1)) {}
  void halt() {
    a.halt();
    b.halt();
  }
  void renew(std::uint64_t run) {
    ASSERT_EQ(a.obstacle(), "");
    ASSERT_EQ(b.obstacle(), "");
    a.renew(run);
    b.renew(run);
    bool over_a = false, over_b = false;
    for (int i = 0; i < 100'000 && !(over_a && over_b); ++i) {
      over_a = over_a || a.renewed();
      over_b = over_b || b.renewed();
    }
    ASSERT_TRUE(over_a && over_b) << a.unended() << "; " << b.unended();
    EXPECT_EQ(mpi.unmatched(), 0U);
    EXPECT_EQ(a.in_flight() + b.in_flight(), 0);
    EXPECT_FALSE(a.given_up() || b.given_up());
  }
  FakeMpi mpi;
  MpiEngine a, b;
};

std::size_t bytes_of(const Values& values) { return values.size() * sizeof(int); }

void send(MpiEngine& from, int to, int tag, const std::shared_ptr<Values>& values) {
  from.send(values->data(), bytes_of(*values), to, tag, [] { FAIL(); }, {values});
}
void receive(MpiEngine& at, int from, int tag, const std::shared_ptr<Values>& values) {
  at.receive(values->data(), bytes_of(*values), from, tag, [] { FAIL(); }, {values});
}

// With the same tag, so that nothing of before may be left.
void expect_to_move(Two& two, int tag, std::size_t size) {
  const Values from(size, 7);
  Values to(size);
  bool over = false;
  two.a.send(from.data(), bytes_of(from), 1, tag, [] {});
  two.b.receive(to.data(), bytes_of(to), 0, tag, [&] { over = true; });
  for (int i = 0; i < 100'000 && (!over || two.a.in_flight() > 0); ++i)
    two.a.drive(), two.b.drive();
  EXPECT_EQ(to, from);
}

TEST(MpiRenewal, TakesWhatNobodyHasReceived) {
  constexpr std::size_t kPieces = std::size_t{5} << 20;  // more of them than are posted at a time
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const std::size_t size : {kShort, kLong, kPieces}) {
      if (size == kPieces && seed > 1) continue;
      Two two(seed);
      const int tag = two.a.next_tag(1);
      for (int i = 0; i < 3; ++i) send(two.a, 1, tag, std::make_shared<Values>(size));
      two.halt();
      two.renew(2);
      expect_to_move(two, tag, size);
    }
}

TEST(MpiRenewal, CancelsAReceiveThatNobodyHasSentTo) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Two two(seed);
    const int tag = two.a.next_tag(1);
    const auto values = std::make_shared<Values>(kLong, 3);
    receive(two.b, 0, tag, values);
    two.halt();
    two.renew(2);
    EXPECT_EQ(*values, Values(kLong, 3));
    EXPECT_EQ(values.use_count(), 1) << "is kept no longer";
    expect_to_move(two, tag, kLong);
  }
}

TEST(MpiRenewal, EndsWhatWasOnItsWay) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Two two(seed);
    const int tag = two.a.next_tag(1);
    send(two.a, 1, tag, std::make_shared<Values>(kLong));
    receive(two.b, 0, tag, std::make_shared<Values>(kLong));
    two.b.drive();
    two.halt();
    two.renew(2);
    expect_to_move(two, tag, kLong);
  }
}

TEST(MpiRenewal, HearsNoticesOfTheNextRunThatComeEarly) {
  Two two(3);
  two.halt();
  two.a.renew(2);
  two.b.renew(2);
  while (!two.a.renewed()) two.b.renewed();
  two.a.send_notice(1, {std::byte{5}});
  while (!two.b.renewed()) two.a.drive();
  int heard = 0;
  two.b.on_notice([&](int from, std::span<const std::byte> notice) {
    EXPECT_EQ(from, 0);
    heard = static_cast<int>(notice[0]);
    return true;
  });
  for (int i = 0; i < 10'000 && heard == 0; ++i) two.a.drive(), two.b.drive();
  EXPECT_EQ(heard, 5);
  two.b.on_notice(nullptr);
}

TEST(MpiRenewal, CanFollowOneThatWasNotCompleted) {
  Two two(4);
  const int tag = two.a.next_tag(1);
  send(two.a, 1, tag, std::make_shared<Values>(kLong));
  two.halt();
  two.a.renew(2);
  EXPECT_FALSE(two.a.renewed());
  EXPECT_EQ(two.a.unended(), "a send of 40000 bytes to process 1");
  two.a.halt();
  two.renew(3);
  expect_to_move(two, tag, kLong);
}

TEST(MpiRenewal, IsRefusedWhileMemoryOfTheProgramIsInFlight) {
  Two two(5);
  int value = 0;
  two.a.send(&value, sizeof value, 1, 7, [] {});
  two.b.receive(&value, sizeof value, 0, 7, [] {}, {std::make_shared<int>(), true, true});
  two.halt();
  EXPECT_EQ(two.a.obstacle(),
            "a send of 4 bytes to process 1 is in flight in memory of the program");
  EXPECT_EQ(two.b.obstacle(),
            "a receive of 4 bytes from process 0 is in flight in memory of the program");
}

TEST(MpiRenewal, IsRefusedWhileATensorThatOutlivesTheRunIsReceived) {
  Two two(6);
  auto tensor = std::make_shared<Values>(kShort);
  for (int i = 0; i < 2; ++i)
    two.b.receive(tensor->data(), bytes_of(*tensor), 0, 7 + i, [tensor] {}, {tensor, true});
  two.halt();
  EXPECT_EQ(
      two.b.obstacle(),
      "a receive of 40 bytes from process 0 is in flight into a tensor that outlives its run");
  tensor.reset();
  EXPECT_EQ(two.b.obstacle(), "");
}

const char* refuse(const void*, std::size_t, int, int, std::uint64_t) { return "no endpoint"; }

TEST(MpiRenewal, IsRefusedAfterAnErrorOfMpi) {
  FakeMpi mpi(2, 1);
  MpiApi failing = mpi.api(0);
  failing.send = refuse;
  MpiEngine a(failing);
  a.on_broken([](const std::string&) {});
  a.send_notice(1, {std::byte{1}});
  EXPECT_TRUE(a.halted());
  EXPECT_EQ(a.obstacle(), "simulated MPI: no endpoint");
  a.on_broken(nullptr);
}

}  // namespace
}  // namespace coshard::mpi_renewal
