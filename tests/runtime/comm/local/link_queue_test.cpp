// When collectives and messages pass an emulated link, by a clock that stands still.
#include <gtest/gtest.h>

#include <chrono>

#include "runtime/comm/local/host/collective_op.h"
#include "tests/support/nanoseconds.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {
using testing::kMicrosecond;

const Link kLink{10, 1'000};  // a byte takes a nanosecond

Collective gather_of(std::int64_t elements) {
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = elements;
  return c;
}

// Where the clock of the rank does not move meanwhile.
void at_one_moment(const std::function<void()>& body) {
  on_virtual_ranks(1, {}, [&](Communicator&) -> Task<void> {
    body();
    co_return;
  });
}

TEST(LinkQueueOf, AnOpTakesLatencyAndBytesAndTheNextComesAfterIt) {
  at_one_moment([] {
    LinkQueue queue(kLink, 2);
    CollectiveOp op(2);
    for (int r = 0; r < 2; ++r) op.entries[static_cast<std::size_t>(r)].args = gather_of(2000);
    const Passage first = queue.pass(op), second = queue.pass(op);
    EXPECT_EQ(first.begin, virtual_now());
    EXPECT_EQ(first.end - first.begin, 10 * kMicrosecond + 4000);  // half of 8,000 bytes
    EXPECT_EQ(second.begin, first.end);
    EXPECT_EQ(second.end - second.begin, first.end - first.begin);
    EXPECT_NE(queue.text().find("10us"), std::string::npos);
  });
}

TEST(LinkQueueOf, CountedBlocksTakeWhatTheBusiestRankSendsToOthers) {
  at_one_moment([] {
    LinkQueue queue(kLink, 2);
    CollectiveOp op(2);
    const auto counts = [](std::int64_t a, std::int64_t b) {
      return std::make_shared<const std::vector<std::int64_t>>(std::vector{a, b});
    };
    for (int r = 0; r < 2; ++r) {
      Collective& c = op.entries[static_cast<std::size_t>(r)].args;
      c.kind = CollectiveKind::AllToAll;
      c.send_counts = r == 0 ? counts(7000, 1000) : counts(2000, 9000);
      c.recv_counts = r == 0 ? counts(7000, 2000) : counts(1000, 9000);
    }
    const Passage passage = queue.pass(op);
    EXPECT_EQ(passage.end - passage.begin, 10 * kMicrosecond + 8000);  // 2,000 floats of rank 1
  });
}

TEST(LinkQueueOf, AMessageTakesTheLinkOfItsSenderAlone) {
  at_one_moment([] {
    LinkQueue queue(kLink, 2);
    const std::int64_t now = virtual_now();
    EXPECT_EQ(queue.pass_message(0, 5000).end, now + 15 * kMicrosecond);
    EXPECT_EQ(queue.pass_message(1, 1000).begin, now);
    EXPECT_EQ(queue.pass_message(0, 1000).begin, now + 15 * kMicrosecond);
  });
}

TEST(LinkQueueOf, PartsOfAGatherComeOneByOneTheOwnFirst) {
  at_one_moment([] {
    LinkQueue queue(kLink, 4);
    CollectiveOp op(4);
    for (int r = 0; r < 4; ++r) op.entries[static_cast<std::size_t>(r)].args = gather_of(4000);
    op.passage = queue.pass(op);
    const std::int64_t first = virtual_now() + 10 * kMicrosecond;
    EXPECT_EQ(queue.part_ns(op, 1, 1), op.passage.end);  // or at once: nobody asks for its own
    EXPECT_EQ(queue.part_ns(op, 2, 1), first + (op.passage.end - first) / 3);
    EXPECT_EQ(queue.part_ns(op, 0, 1), op.passage.end);
  });
}

}  // namespace
}  // namespace coshard::testing
