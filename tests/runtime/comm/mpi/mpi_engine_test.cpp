#include "runtime/comm/mpi/mpi_engine.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include "tests/support/fake_mpi.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/virtual_ranks.h"

namespace coshard {
namespace {

using testing::FakeMpi;
using testing::kHour;

MpiEngine::Bytes bytes_of(int value) {
  return {static_cast<std::byte>(value), static_cast<std::byte>(value >> 8)};
}

TEST(MpiEngine, HearsNoticesOfEachProcessInTheOrderOfTheirSending) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    FakeMpi mpi(3, seed);
    MpiEngine a(mpi.api(0)), b(mpi.api(1)), c(mpi.api(2));
    std::map<int, std::vector<int>> heard;
    for (int i = 0; i < 50; ++i) {
      a.send_notice(2, bytes_of(i));
      b.send_notice(2, bytes_of(1000 + i));
      if (i == 10)
        c.on_notice([&](int from, std::span<const std::byte> n) {
          heard[from].push_back(static_cast<int>(n[0]) | static_cast<int>(n[1]) << 8);
          return true;
        });
      c.drive();
    }
    while (heard[0].size() + heard[1].size() < 100) a.drive(), b.drive(), c.drive();
    std::vector<int> expected(50);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(heard[0], expected);
    std::iota(expected.begin(), expected.end(), 1000);
    EXPECT_EQ(heard[1], expected);
  }
}

TEST(MpiEngine, SaysWhetherDataMoveBeforeALargeBlockIsOver) {
  FakeMpi mpi(2, 1);
  MpiEngine a(mpi.api(0)), b(mpi.api(1));
  constexpr std::size_t kBytes = 40'000'000;
  const std::vector<std::byte> from(kBytes, std::byte{7});
  std::vector<std::byte> to(kBytes);
  bool over = false;
  const int tag = a.next_tag(1);
  a.send(from.data(), kBytes, 1, tag, [] {});
  EXPECT_EQ(a.in_flight(), 10);
  b.receive(to.data(), kBytes, 0, tag, [&] { over = true; });
  a.send_notice(1, bytes_of(1));  // is no data
  EXPECT_FALSE(b.data_move(0, kHour));
  while (!b.data_move(0, kHour)) a.drive(), b.drive();
  EXPECT_FALSE(over);
  EXPECT_FALSE(b.data_move(0, 0));
  while (!over || a.in_flight() > 0) a.drive(), b.drive();
  EXPECT_TRUE(a.data_move(1, kHour));
  EXPECT_EQ(from, to);
}

// From its first piece on: one that comes late and at once is not slow.
TEST(MpiEngine, SaysWhetherABlockMovesSlowly) {
  constexpr std::size_t kPiece = 60 * 1024;
  FakeMpi mpi(2, 1);
  MpiEngine a(mpi.api(0)), b(mpi.api(1));
  for (MpiEngine* engine : {&a, &b}) engine->on_hosts({0, 1});
  const std::vector<std::byte> from(50 * kPiece);
  std::vector<std::byte> to(50 * kPiece);
  const auto is_slow = [&](std::size_t pieces, std::int64_t deadline_ns) {
    b.set_deadline(deadline_ns);
    bool over = false;
    const int tag = a.next_tag(1);
    a.send(from.data(), pieces * kPiece, 1, tag, [] {});
    b.receive(to.data(), pieces * kPiece, 0, tag, [&] { over = true; });
    while (!over) a.drive(), b.drive();
    b.set_deadline(kHour);
    return b.moves_slowly();
  };
  EXPECT_FALSE(is_slow(50, kHour));
  EXPECT_FALSE(is_slow(50, 0));
  EXPECT_FALSE(is_slow(1, 4));
  EXPECT_TRUE(is_slow(50, 4));
  b.set_deadline(1);
  EXPECT_FALSE(b.moves_slowly()) << "it was so, but not lately";
}

TEST(MpiEngine, SaysWhetherShortBlocksMoveWithoutAPause) {
  constexpr std::chrono::nanoseconds kDeadline(1'600'000'000);
  FakeMpi mpi(2, 1);
  MpiEngine a(mpi.api(0), rank_now_ns), b(mpi.api(1), rank_now_ns);
  b.set_deadline(kDeadline.count());
  auto move = [&, data = 7]() mutable {
    bool over = false;
    a.send(&data, sizeof data, 1, 7, [] {});
    b.receive(&data, sizeof data, 0, 7, [&] { over = true; });
    while (!over) a.drive(), b.drive();
    return b.moves_steadily();
  };
  testing::on_virtual_fibers(1, [&](int) {
    for (int i = 0; i <= 5; ++i, testing::compute_for(kDeadline / 16)) EXPECT_EQ(move(), i > 4);
    testing::compute_for(kDeadline / 16 + std::chrono::nanoseconds(1));
    EXPECT_FALSE(b.moves_steadily() || move()) << "after a pause";
  });
}

TEST(MpiEngine, KeepsNoticesThatNobodyTakes) {
  FakeMpi mpi(2, 1);
  MpiEngine a(mpi.api(0)), b(mpi.api(1));
  const auto count_of = [&](int wanted) {
    int count = 0;
    b.on_notice([&](int, std::span<const std::byte> n) {
      if (static_cast<int>(n[0]) != wanted) return false;
      ++count;
      return true;
    });
    for (int i = 0; i < 200; ++i) a.drive(), b.drive();
    return count;
  };
  for (const int value : {1, 2, 1, 3, 2}) a.send_notice(1, bytes_of(value));
  EXPECT_EQ(count_of(1), 2);
  EXPECT_EQ(count_of(2), 2);
  EXPECT_EQ(count_of(2), 0);
  EXPECT_EQ(count_of(3), 1);
}

TEST(MpiEngine, MovesBlocksOfAnySizeWhoeverComesFirst) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{5000},
                                 std::size_t{4} << 20, (std::size_t{9} << 20) + 3}) {
    FakeMpi mpi(2, size);
    MpiEngine a(mpi.api(0)), b(mpi.api(1));
    std::vector<unsigned char> from(size), to(size);
    for (std::size_t i = 0; i < size; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
    const int tag = a.next_tag(1);
    int sent = 0, received = 0;
    if (size % 2 == 0) b.receive(to.data(), size, 0, tag, [&] { ++received; });
    a.send(from.data(), size, 1, tag, [&] { ++sent; });
    if (size % 2 != 0) b.receive(to.data(), size, 0, tag, [&] { ++received; });
    EXPECT_GT(b.in_flight(), 0);
    while (sent + received < 2) a.drive(), b.drive();
    EXPECT_EQ(from, to);
    EXPECT_EQ(a.in_flight() + b.in_flight(), 0);
    EXPECT_EQ(mpi.unmatched(), 0U);
  }
}

TEST(MpiEngine, DrawsTagsOfItsOwnForEachProcessAndBeginsAgainAfterTheLast) {
  FakeMpi mpi(3, 1);
  MpiEngine a(mpi.api(0));
  const int first = a.next_tag(1);
  EXPECT_EQ(a.next_tag(2), first);
  int largest = 0;
  bool again = false;
  for (int i = 0; i < 300; ++i) {
    const int tag = a.next_tag(1);
    EXPECT_GT(tag, 1);  // which notices have
    largest = std::max(largest, tag);
    again |= tag == first;
  }
  EXPECT_EQ(largest, 100);
  EXPECT_TRUE(again);
}

// A library that moves nothing: what it was given is over at the next poll, and may not be larger
// than MPI's int counts bytes.
struct Given {
  std::uintptr_t begin;
  std::size_t bytes;
};
std::vector<Given> given;
std::vector<MpiDone> over_next, over_now;

const char* take(const void* data, std::size_t bytes, int, int tag, std::uint64_t cookie) {
  if (tag == 1) return nullptr;  // where a notice may arrive
  if (bytes > std::size_t{1} << 30) return "more than a message may have";
  given.push_back({reinterpret_cast<std::uintptr_t>(data), bytes});
  over_next.push_back({cookie, bytes});
  return nullptr;
}
const char* give(void* data, std::size_t bytes, int from, int tag, std::uint64_t cookie) {
  return take(data, bytes, from, tag, cookie);
}
const char* end_all(const MpiDone** done, int* count) {
  over_now = std::exchange(over_next, {});
  *done = over_now.data();
  *count = static_cast<int>(over_now.size());
  return nullptr;
}

MpiApi counting(FakeMpi& mpi) {
  MpiApi api = mpi.api(0);
  api.send = take;
  api.receive = give;
  api.poll = end_all;
  return api;
}

TEST(MpiEngine, CutsABlockOfMoreThanFourGibibytesIntoAllOfIt) {
  constexpr std::size_t kBytes = (std::size_t{5} << 30) + 3;
  void* const memory = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);  // addresses alone: nobody may touch it
  FakeMpi mpi(2, 1);
  const MpiApi api = counting(mpi);
  MpiEngine a(api);
  for (const bool sends : {true, false}) {
    given.clear();
    int over = 0;
    const int tag = a.next_tag(1);
    if (sends)
      a.send(memory, kBytes, 1, tag, [&] { ++over; });
    else
      a.receive(memory, kBytes, 1, tag, [&] { ++over; });
    for (int i = 0; i < 10'000 && a.in_flight() > 0; ++i) a.drive();
    EXPECT_EQ(over, 1);
    EXPECT_EQ(a.in_flight(), 0);
    std::uintptr_t next = reinterpret_cast<std::uintptr_t>(memory);
    for (const Given& piece : given) {
      ASSERT_EQ(piece.begin, next);
      next += piece.bytes;
    }
    EXPECT_EQ(next - reinterpret_cast<std::uintptr_t>(memory), kBytes);
  }
  a.give_up();
  ::munmap(memory, kBytes);
}

// In the order of posting, so that pieces of one block never enter that of another.
TEST(MpiEngine, CutsBlocksBetweenHostsIntoPiecesThatMpiSendsAtOnceAndPostsFew) {
  constexpr std::size_t kBytes = 3'000'001, kMost = 60 * 1024;
  std::vector<char> memory(2 * kBytes);
  FakeMpi mpi(3, 1);
  const MpiApi api = counting(mpi);
  MpiEngine a(api);
  a.on_hosts({0, 1, 0});
  for (const bool sends : {true, false}) {
    given.clear();
    std::string over;
    const auto begin = [&](std::size_t block, int tag, int peer, char name) {
      char* data = memory.data() + block * kBytes;
      if (sends)
        a.send(data, kBytes, peer, tag, [&over, name] { over += name; });
      else
        a.receive(data, kBytes, peer, tag, [&over, name] { over += name; });
    };
    const int tag = a.next_tag(1);
    begin(0, tag, 1, 'a');
    begin(1, tag, 1, 'b');  // behind it
    EXPECT_EQ(given.size(), sends ? 8U : 16U);
    while (a.in_flight() > 0) {
      a.drive();
      EXPECT_LE(over_next.size(), sends ? 16U : 32U) << "the last ones of 'a', the first of 'b'";
    }
    EXPECT_EQ(over, "ab");
    std::uintptr_t next = reinterpret_cast<std::uintptr_t>(memory.data());
    for (const Given& piece : given) {
      ASSERT_EQ(piece.begin, next);
      ASSERT_LE(piece.bytes, kMost);
      next += piece.bytes;
    }
    EXPECT_EQ(next - reinterpret_cast<std::uintptr_t>(memory.data()), 2 * kBytes);
    given.clear();
    begin(0, a.next_tag(2), 2, 'c');  // on this host, in one
    EXPECT_EQ(given.size(), 1U);
    while (a.in_flight() > 0) a.drive();
  }
  a.give_up();
}

TEST(MpiEngine, MovesBlocksBetweenHostsWhoeverComesFirst) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{60} << 10, (std::size_t{3} << 20) + 3})
    for (const bool receiver_first : {true, false}) {
      FakeMpi mpi(2, size);
      MpiEngine a(mpi.api(0)), b(mpi.api(1));
      for (MpiEngine* engine : {&a, &b}) engine->on_hosts({0, 1});
      std::vector<unsigned char> from(2 * size), to(2 * size);
      for (std::size_t i = 0; i < from.size(); ++i)
        from[i] = static_cast<unsigned char>(i * 7 + i / 256);
      const int tag = a.next_tag(1);
      int over = 0;
      const auto receive = [&] {
        for (const std::size_t at : {std::size_t{0}, size})
          b.receive(to.data() + at, size, 0, tag, [&] { ++over; });
      };
      if (receiver_first) receive();
      for (const std::size_t at : {std::size_t{0}, size})
        a.send(from.data() + at, size, 1, tag, [&] { ++over; });
      if (!receiver_first) receive();
      while (over < 4) a.drive(), b.drive();
      EXPECT_EQ(from, to);
      EXPECT_EQ(a.in_flight() + b.in_flight(), 0);
      EXPECT_EQ(mpi.unmatched(), 0U);
    }
}

const char* refuse(const void*, std::size_t, int, int, std::uint64_t) { return "no endpoint"; }

TEST(MpiEngine, TellsOnceWhatMpiReportsAndCallsItNoMore) {
  FakeMpi mpi(2, 1);
  MpiApi failing = mpi.api(0);
  failing.send = refuse;
  MpiEngine a(failing);
  std::vector<std::string> problems;
  EXPECT_THROW(a.send_notice(1, bytes_of(1)), Error);
  a.on_broken([&](const std::string& problem) { problems.push_back(problem); });
  a.send_notice(1, bytes_of(1));
  a.send_notice(1, bytes_of(2));
  EXPECT_FALSE(a.drive());
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find(": no endpoint"), std::string::npos) << problems[0];
  EXPECT_TRUE(a.given_up());
  a.on_broken(nullptr);
}

// Ends when it is told to; what comes back before that has come too early.
class Stay {
 public:
  void stay() {
    inside_.set_value();
    leave_.get_future().wait();
    left = true;
  }
  void wait_until_inside() { inside_.get_future().wait(); }
  void leave() { leave_.set_value(); }
  std::atomic<bool> left{false};

 private:
  std::promise<void> inside_, leave_;
};

Stay* in_mpi = nullptr;
const char* stay_in_mpi(const MpiDone**, int* count) {
  *count = 0;
  if (Stay* stay = std::exchange(in_mpi, nullptr)) stay->stay();
  return nullptr;
}

TEST(MpiEngine, ThatHaltsHasLeftMpiForWhoeverHaltsIt) {
  FakeMpi mpi(2, 1);
  MpiApi api = mpi.api(0);
  api.poll = stay_in_mpi;
  MpiEngine a(api);
  Stay stay;
  in_mpi = &stay;
  std::thread drives([&] { a.drive(); });
  stay.wait_until_inside();
  std::vector<std::thread> halts;
  std::atomic<int> early{0};
  for (int i = 0; i < 2; ++i)
    halts.emplace_back([&] {
      a.halt();
      if (!stay.left) ++early;
    });
  while (!a.halted()) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stay.leave();
  drives.join();
  for (std::thread& thread : halts) thread.join();
  EXPECT_EQ(early, 0);
}

// Who is told may be gone then.
TEST(MpiEngine, TellsNobodyAnyMoreOnceAnotherIsToBeTold) {
  FakeMpi mpi(2, 1);
  MpiApi failing = mpi.api(0);
  failing.send = refuse;
  MpiEngine a(failing);
  Stay stay;
  a.on_broken([&](const std::string&) {
    a.halt();  // which it may
    stay.stay();
  });
  std::thread tells([&] { a.send_notice(1, bytes_of(1)); });
  stay.wait_until_inside();
  bool early = false;
  std::thread forgets([&] {
    a.on_broken(nullptr);
    early = !stay.left;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stay.leave();
  tells.join();
  forgets.join();
  EXPECT_FALSE(early);
}

}  // namespace
}  // namespace coshard
