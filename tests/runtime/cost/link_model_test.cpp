#include "runtime/cost/link_model.h"

#include <gtest/gtest.h>

#include "runtime/device/sim/limits.h"

namespace coshard {
namespace {

// 1 byte per ns; small messages: less latency, at a quarter of the rate.
const LinkModel kLink{"nvlink", {{1000, 100, 1e9}, {200, 10, 0.25e9}}};

Collective of(CollectiveKind kind, std::int64_t elements) {
  Collective c;
  c.kind = kind;
  c.extent = elements;
  return c;
}

TEST(LinkModel, ARingTakesItsStepsAndAlgorithmicBytes) {
  const LinkTime gather = link_time(kLink, of(CollectiveKind::AllGather, 8000), 8, 0);
  EXPECT_EQ(gather.latency_ns, 1700);
  EXPECT_EQ(gather.busy_ns, 28'000);
  const LinkTime reduce = link_time(kLink, of(CollectiveKind::AllReduce, 8000), 8, 0);
  EXPECT_EQ(reduce.latency_ns, 2400);
  EXPECT_EQ(reduce.busy_ns, 56'000);
}

TEST(LinkModel, ASmallMessageTakesTheProtocolThatIsFasterForIt) {
  const LinkTime time = link_time(kLink, of(CollectiveKind::AllReduce, 8), 8, 0);
  EXPECT_EQ(time.latency_ns, 340);
  EXPECT_EQ(time.busy_ns, 224);
}

TEST(LinkModel, AMessageWithCountsTakesAStepForEachPeerThatItGoesTo) {
  Collective c = of(CollectiveKind::AllToAll, 0);
  c.send_counts = std::make_shared<const std::vector<std::int64_t>>(
      std::vector<std::int64_t>{5000, 10'000, 0, 0});
  c.recv_counts = std::make_shared<const std::vector<std::int64_t>>(
      std::vector<std::int64_t>{5000, 0, 0, 12'000});
  const LinkTime time = link_time(kLink, c, 4, 0);
  EXPECT_EQ(time.latency_ns, 1100);
  EXPECT_EQ(time.busy_ns, 48'000);
}

TEST(LinkModel, OneRankSendsNothing) {
  EXPECT_EQ(link_time(kLink, of(CollectiveKind::AllReduce, 8), 1, 0).total(), 0);
}

TEST(LinkModel, ATimeThatNoIntegerHoldsIsCut) {
  const LinkModel slow{"slow", {{1e18, 1e300, 1e-300}}};
  const LinkTime time = link_time(slow, of(CollectiveKind::AllReduce, 8), 8, 0);
  EXPECT_EQ(time.latency_ns, kLongestNs);
  EXPECT_EQ(time.busy_ns, kLongestNs);
}

}  // namespace
}  // namespace coshard
