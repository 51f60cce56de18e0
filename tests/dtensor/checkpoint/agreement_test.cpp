// One rank's failure is all ranks' error; bytes go to whom they are for.
#include "dtensor/checkpoint/agreement.h"

#include <gtest/gtest.h>

#include "dtensor/checkpoint/local_parts.h"
#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

TEST(Agreement, OfFailuresThrowsThatOfTheFirstRankOnAll) {
  on_ranks(4, [](World& world) -> Task<void> {
    for (const ErrorKind kind : {ErrorKind::BadInput, ErrorKind::DeviceFailed}) {
      std::exception_ptr own;
      if (world.rank() == 2 || world.rank() == 3)
        own = failure_of([&] { fail(kind, str_cat("of ", world.rank(), std::string(3000, 'x'))); });
      std::string text;
      ErrorKind got = ErrorKind::Timeout;
      try {
        Task<void> agreed = agree(world, own);
        co_await std::move(agreed);
      } catch (const Error& error) {
        text = error.message();
        got = error.kind();
      }
      EXPECT_EQ(text.substr(0, 13), "rank 2: of 2x");
      EXPECT_LT(text.size(), 1100U);
      EXPECT_EQ(got, kind);
    }
    Task<void> agreed = agree(world, nullptr);
    co_await std::move(agreed);
  });
}

TEST(Agreement, TellsAllRanksTheTextsOfRank0) {
  on_ranks(3, [](World& world) -> Task<void> {
    const std::vector<std::string> told{"a", "", std::string("\0\n", 2), std::string(1 << 20, 'x')};
    for (const std::vector<std::string>& texts : {told, {}}) {
      const bool tells = world.rank() == 0;
      Task<std::vector<std::string>> telling =
          texts_of_rank_0(world, tells ? texts : std::vector<std::string>{"other"}, nullptr);
      const std::vector<std::string> got = co_await std::move(telling);
      EXPECT_TRUE(got == texts);
    }
    std::string said;
    try {
      const std::exception_ptr failed =
          failure_of([&] { CS_REQUIRE(world.rank() != 0, "no such file"); });
      Task<std::vector<std::string>> telling = texts_of_rank_0(world, {}, failed);
      co_await std::move(telling);
    } catch (const Error& error) {
      said = error.message();
    }
    EXPECT_EQ(said, "rank 0: no such file");
  });
}

TEST(Agreement, ExchangesBytesOfAllSizes) {
  on_ranks(3, [](World& world) -> Task<void> {
    // Rank r sends r * 3 + s bytes of that value to rank s.
    const int me = world.rank();
    ByteVector sent, want;
    std::vector<std::int64_t> send_counts, recv_counts;
    for (int peer = 0; peer < 3; ++peer) {
      const int out = me * 3 + peer, in = peer * 3 + me;
      sent.insert(sent.end(), static_cast<std::size_t>(out), static_cast<std::byte>(out));
      want.insert(want.end(), static_cast<std::size_t>(in), static_cast<std::byte>(in));
      send_counts.push_back(out);
      recv_counts.push_back(in);
    }
    Task<ReceivedBytes> exchanged = exchange_bytes(world, sent, send_counts, recv_counts, nullptr);
    const ReceivedBytes got = co_await std::move(exchanged);
    EXPECT_EQ(*got, want);
    Task<std::vector<int>> gathered = gather_numbers<int>(world, {me, me * me}, "numbers");
    const std::vector<int> all = co_await std::move(gathered);
    EXPECT_EQ(all, (std::vector<int>{0, 0, 1, 1, 2, 4}));
  });
}

}  // namespace
}  // namespace coshard::testing
