// Calls of a rank while MPI moves something all the time, be it for others.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/local/local_communicator.h"
#include "tests/support/fake_mpi.h"

namespace coshard {
namespace {

// How often a clock was read that hardly moves: by it, MPI has just moved something in the first
// 30,000 calls of a waiting rank.
std::atomic<std::int64_t> looks{0};
constexpr std::int64_t kFewLooks = 10'000;

// Rank 0; process 1 only sends notices.
struct OneOfTwo {
  OneOfTwo() {
    ranks->tell({.left = [this](int rank) { group.leave(rank); }});
    looks = 0;
  }
  ~OneOfTwo() {
    ranks->stop();
    engine->forget();
    peer.give_up();
  }
  testing::FakeMpi mpi{2, 7};
  MpiEngine peer{mpi.api(1)};
  std::shared_ptr<MpiEngine> engine =
      std::make_shared<MpiEngine>(mpi.api(0), [] { return 1 + 100 * ++looks; });
  std::shared_ptr<MpiRanks> ranks = std::make_shared<MpiRanks>(engine, 1, 1);
  ThreadGroup group{2, "world", {.remote = ranks, .key = 1}};
  std::shared_ptr<Communicator> mine = group.communicator(0);
};

std::string failure_of(const Work& work) {
  try {
    work.wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(BusyMpi, DoesNotKeepAWaitFromEndingWhenItsPeerHasLeft) {
  OneOfTwo all;
  const Work work = all.mine->issue({});
  all.peer.send_notice(0, to_bytes(LeftNotice{1, 1}));
  const std::string failure = failure_of(work);
  EXPECT_NE(failure.find("rank 1 left the program"), std::string::npos) << failure;
  EXPECT_LT(looks, kFewLooks);
}

TEST(BusyMpi, DoesNotKeepAWaitFromEndingAtItsDeadline) {
  OneOfTwo all;
  all.mine->set_timeout(1);
  const std::string failure = failure_of(all.mine->issue({}));
  EXPECT_NE(failure.find("timeout after"), std::string::npos) << failure;
  EXPECT_LT(looks, kFewLooks);
}

// Beyond what may be in flight, an issue helps; the peer takes part in none of them.
void issue_much(OneOfTwo& all, const std::shared_ptr<WorkState>& after) {
  std::vector<float> data(3'000'000);
  Collective sum;
  sum.kind = CollectiveKind::AllReduce;
  sum.extent = static_cast<std::int64_t>(data.size());
  sum.send = sum.recv = data.data();
  sum.after = after;
  std::vector<Work> works;
  for (int i = 0; i < 6; ++i) works.push_back(all.mine->issue(sum));
  EXPECT_LT(looks, kFewLooks);
  all.mine->poison("done");
}

TEST(BusyMpi, DoesNotKeepAnIssueFromReturning) {
  OneOfTwo all;
  issue_much(all, nullptr);
}

TEST(BusyMpi, DoesNotKeepAnIssueFromReturningWhoseBufferIsNotFilled) {
  OneOfTwo all;
  const Work before = all.mine->issue({});
  issue_much(all, before.state());
}

// Of a rank that shares its thread with others, whose turn it is as soon as nothing moves.
struct SharedParker final : Parker {
  void park(std::int64_t, boost::asio::io_context*) override {}
  void unpark() noexcept override {}
  std::int64_t now() const override { return now_ns(); }
  bool shares_its_thread() const override { return true; }
};

TEST(BusyMpi, DoesNotKeepTheThreadThatARankSharesWithOthers) {
  OneOfTwo all;
  SharedParker parker;
  RankContext context(&parker);
  RankContext* const before = RankContext::exchange(&context);
  const Work work = all.mine->issue({});
  LocalGroup& group = std::dynamic_pointer_cast<LocalCommunicator>(all.mine)->group();
  int moves = 0;
  while (moves < 1000 && group.drive()) ++moves;
  EXPECT_LT(moves, 10);
  all.mine->poison("done");
  RankContext::exchange(before);
}

}  // namespace
}  // namespace coshard
