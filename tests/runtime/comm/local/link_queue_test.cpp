// When collectives and messages pass an emulated link, by a clock that stands still.
#include <gtest/gtest.h>

#include <chrono>

#include "runtime/comm/local/job.h"
#include "tests/support/virtual_ranks.h"

namespace coshard::testing {
namespace {

constexpr std::int64_t kMicrosecond = 1000;
const Link kLink{std::chrono::microseconds(10), 1e9};  // a byte takes a nanosecond

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

TEST(LinkQueueOf, AJobTakesLatencyAndBytesAndTheNextComesAfterIt) {
  at_one_moment([] {
    LinkQueue queue(kLink, 2);
    Job job(2);
    for (int r = 0; r < 2; ++r) job.entries[static_cast<std::size_t>(r)].args = gather_of(2000);
    const Passage first = queue.pass(job), second = queue.pass(job);
    EXPECT_EQ(first.begin, virtual_now());
    EXPECT_EQ(first.end - first.begin, 10 * kMicrosecond + 4000);  // half of 8,000 bytes
    EXPECT_EQ(second.begin, first.end);
    EXPECT_EQ(second.end - second.begin, first.end - first.begin);
    EXPECT_NE(queue.text().find("10us"), std::string::npos);
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
    Job job(4);
    for (int r = 0; r < 4; ++r) job.entries[static_cast<std::size_t>(r)].args = gather_of(4000);
    job.passage = queue.pass(job);
    const std::int64_t first = virtual_now() + 10 * kMicrosecond;
    EXPECT_EQ(queue.part_ns(job, 1, 1), job.passage.end);  // or at once: nobody asks for its own
    EXPECT_EQ(queue.part_ns(job, 2, 1), first + (job.passage.end - first) / 3);
    EXPECT_EQ(queue.part_ns(job, 0, 1), job.passage.end);
  });
}

}  // namespace
}  // namespace coshard::testing
