// Links as text, and what they say a collective costs.
#include <gtest/gtest.h>

#include <limits>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/error.h>

namespace coshard::testing {
namespace {

TEST(LinkText, ReadsATimeAndARate) {
  EXPECT_EQ(parse_link("20us,1GB/s"), (Link{20, 1'000}));
  EXPECT_EQ(parse_link("1.5ms,12.5MB/s"), (Link{1'500, 12.5}));
  EXPECT_EQ(parse_link("0s,3B/s"), (Link{0, 3e-06}));
  EXPECT_EQ(parse_link("250ns,2TB/s"), (Link{0.25, 2'000'000}));
  EXPECT_EQ(parse_link("800KB/s"), (Link{0, 0.8}));
}

TEST(LinkText, PrintsWhatItReads) {
  for (const char* text : {"20us,1GB/s", "1.5ms,12.5MB/s", "0ns,3B/s", "3s,2TB/s"})
    EXPECT_EQ(to_string(parse_link(text)), text);
}

// What plans could not add up, or would divide by, is refused where it is given.
TEST(LinkText, ALinkThatNoPriceCanUseIsRefused) {
  const auto refused = [](const auto& call, const std::string& what) {
    try {
      call();
      ADD_FAILURE() << what << " is accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  for (const char* text :
       {"1us,1e300TB/s", "1us,1e-320B/s", "1us,0GB/s", "-1us,1GB/s", "1e10s,1GB/s"})
    refused([&] { parse_link(text); }, text);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double latency : {-1.0, 1e300, kNan})
    refused([&] { check({latency, 1'000}); }, str_cat("got ", latency));
  for (const double rate : {-1.0, 0.0, 1e-300, 1e300, kNan})
    refused([&] { check({1, rate}); }, str_cat("got ", rate));
  for (const double contention : {-0.5, 1.5, kNan})
    refused([&] { check({1, 1, contention}); }, str_cat("got ", contention));
  check({1e15, 1e-9, 1});
  check({0, 1e15, 0});
}

TEST(LinkText, ATimeThatIsTooLongForTheClockIsCut) {
  const Link slow{1'000'000, 1e-306};
  EXPECT_EQ(slow.time_ns(1), 1'000'000'000'000'000'000);
}

TEST(LinkText, AMessageAndABroadcastMoveAllTheirBytes) {
  Collective c;
  for (const CollectiveKind kind : {CollectiveKind::Send, CollectiveKind::Broadcast}) {
    c.kind = kind;
    EXPECT_EQ(algorithmic_bytes(c, 4, 100), 100);
  }
  c.kind = CollectiveKind::AllReduce;
  EXPECT_EQ(algorithmic_bytes(c, 1, 100), 0);
}

TEST(LinkText, PetabytesOfAMillionRanksAreCounted) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  EXPECT_EQ(algorithmic_bytes(c, 1'000'000, 1'000'000'000'000'000), 1'999'998'000'000'000);
  EXPECT_EQ(algorithmic_bytes(c, 3, 100), 133);  // rounded down
  c.kind = CollectiveKind::AllGather;
  EXPECT_EQ(algorithmic_bytes(c, 3, 100), 66);
}

}  // namespace
}  // namespace coshard::testing
