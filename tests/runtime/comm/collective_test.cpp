// Ranks that ask for different collectives: each field of the fingerprint, an error on all ranks
// with both call sites.
#include <functional>
#include <set>

#include "runtime/comm/collective.h"
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

// The buffer is never read: the disagreement is found before.
Collective base(CollectiveKind kind, const Floats& buffer) {
  Collective c;
  c.kind = kind;
  c.outer = 2;
  c.extent = 12;
  c.inner = 3;
  c.scatter_extent = 6;
  c.send = c.recv = buffer.data();
  c.label = "S(0)->R";
  return c;
}

// Three ranks; the last one changes the collective.
void expect_disagreement(CollectiveKind kind, const std::function<void(Collective&)>& change) {
  std::string here, there;
  const auto outcomes = outcomes_on_ranks(3, [&](Communicator& comm, int rank) {
    const Floats buffer(1000UL);
    Collective c = base(kind, buffer);
    if (rank == 0) here = location_of(c.where = CallSite::current());
    if (rank == 2) {
      change(c);
      there = location_of(c.where = CallSite::current());
    }
    comm.issue(c).wait();
    device_here()->synchronize();
  });
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find(here), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find(there), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("rank 0 calls"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("rank 2 calls"), std::string::npos) << outcome.text;
    EXPECT_EQ(outcome.text.find('\n'), std::string::npos);
  }
}

TEST(Disagreement, OnTheKindIsFound) {
  expect_disagreement(CollectiveKind::AllReduce,
                      [](Collective& c) { c.kind = CollectiveKind::Broadcast; });
  expect_disagreement(CollectiveKind::AllGather,
                      [](Collective& c) { c.kind = CollectiveKind::Barrier; });
  expect_disagreement(CollectiveKind::Barrier,
                      [](Collective& c) { c.kind = CollectiveKind::AllGather; });
}

TEST(Disagreement, OnTheTypeIsFound) {
  expect_disagreement(CollectiveKind::AllReduce, [](Collective& c) { c.dtype = DType::BF16; });
}

TEST(Disagreement, OnTheReductionIsFound) {
  expect_disagreement(CollectiveKind::ReduceScatter, [](Collective& c) { c.reduce = Reduce::Avg; });
}

TEST(Disagreement, OnTheRootIsFound) {
  expect_disagreement(CollectiveKind::Broadcast, [](Collective& c) { c.root = 1; });
  expect_disagreement(CollectiveKind::Scatter, [](Collective& c) { c.root = 1; });
}

TEST(Disagreement, OnTheNumberOfElementsIsFound) {
  expect_disagreement(CollectiveKind::AllReduce, [](Collective& c) { c.extent = 13; });
  expect_disagreement(CollectiveKind::Broadcast, [](Collective& c) { c.inner = 1; });
}

TEST(Disagreement, OnTheGeometryIsFound) {
  expect_disagreement(CollectiveKind::AllGather,
                      [](Collective& c) { std::swap(c.outer, c.inner); });
  expect_disagreement(CollectiveKind::AllGather, [](Collective& c) { c.by_shards = true; });
  expect_disagreement(CollectiveKind::AllToAll, [](Collective& c) { c.middle = 2; });
  expect_disagreement(CollectiveKind::AllToAll, [](Collective& c) { c.gather_first = false; });
}

TEST(Disagreement, OnTheCountsIsFound) {
  expect_disagreement(CollectiveKind::AllGather, [](Collective& c) {
    c.counts = counts_of({4, 5, 3});
  });
  expect_disagreement(CollectiveKind::AllToAll, [](Collective& c) {
    c.scatter_counts = counts_of({1, 2, 3});
  });
}

TEST(Disagreement, OnTheBlocksOfAFlatAllToAllIsFound) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int rank) {
    Floats send(8UL), recv(8UL);
    Collective c;
    c.kind = CollectiveKind::AllToAll;
    c.send_counts = counts_of({2, 2});
    c.recv_counts = rank == 0 ? counts_of({2, 3}) : counts_of({2, 2});
    c.send = send.data();
    c.recv = recv.data();
    comm.issue(c).wait();
    device_here()->synchronize();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("receives 2+3"), std::string::npos) << outcome.text;
  }
}

// What a rank sends to itself it receives from itself, whichever rank it is.
TEST(Disagreement, OfARankWithItselfOnAFlatAllToAllIsFound) {
  for (const int odd : {0, 1, 2}) {
    const auto outcomes = outcomes_on_ranks(3, [odd](Communicator& comm, int rank) {
      Floats send(8UL), recv(12UL);
      std::vector<std::int64_t> to{2, 2, 2}, from{2, 2, 2};
      if (rank == odd) ++from[static_cast<std::size_t>(rank)];
      Collective c;
      c.kind = CollectiveKind::AllToAll;
      c.send_counts = counts_of(std::move(to));
      c.recv_counts = counts_of(std::move(from));
      c.send = send.data();
      c.recv = recv.data();
      comm.issue(c).wait();
      device_here()->synchronize();
    });
    EXPECT_TRUE(outcomes[static_cast<std::size_t>(odd)].failed) << odd;
  }
}

TEST(Disagreement, EqualCountsAndNullAreTheSame) {
  on_ranks(2, [](Communicator& comm, int rank) {
    Floats send(2UL, static_cast<float>(rank)), recv(4UL);
    Collective c;
    c.kind = CollectiveKind::AllGather;
    c.extent = 4;
    if (rank == 1) c.counts = counts_of({2, 2});
    c.send = send.put();
    c.recv = recv.put();
    comm.issue(c).wait();
    EXPECT_EQ(recv.get()[3], 1.0F);
  });
}

TEST(Disagreement, PoisonsTheCommunicatorForLater) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int rank) {
    Floats data(rank == 0 ? 4UL : 5UL), more(3UL);
    EXPECT_THROW(wait_on_host(comm.issue(sum_of(data))), Error);
    comm.issue(sum_of(more)).wait();
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_NE(outcome.text.find("disagree on collective #0"), std::string::npos) << outcome.text;
}

// Rank 2 does more than the others before the collective.
std::vector<Outcome> outcomes_of_notes(bool differ) {
  return outcomes_on_ranks(3, [differ](Communicator& comm, int rank) {
    const Floats buffer(1000UL);
    comm.note({"drew stream", "of seed", 4, 7});
    comm.note({"drew stream", "of seed", rank == 2 && differ ? 6U : 5U, 7});
    comm.issue(base(CollectiveKind::AllReduce, buffer)).wait();
    device_here()->synchronize();
  });
}

TEST(Disagreement, OfWhatRanksHaveNotedBeforeNamesTheLastOfEach) {
  for (const Outcome& outcome : outcomes_of_notes(true)) {
    ASSERT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.kind, ErrorKind::CommFailed);
    EXPECT_NE(outcome.text.find("; rank 0 last drew stream 5 of seed 7"), std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("; rank 2 last drew stream 6 of seed 7"), std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find(": ranks 0 and 2 call all_reduce sum f32 [72]"), std::string::npos)
        << outcome.text;  // what is the same once
  }
  for (const Outcome& outcome : outcomes_of_notes(false)) EXPECT_FALSE(outcome.failed);
}

// The order may be another one: of siblings that draw, whoever runs first.
TEST(Disagreement, OfWhatRanksHaveNotedLooksAtNoOrder) {
  const auto outcomes = outcomes_on_ranks(2, [](Communicator& comm, int rank) {
    const Floats buffer(1000UL);
    comm.note({"drew stream", "of seed", rank == 0 ? 1U : 2U, 7});
    comm.note({"drew stream", "of seed", rank == 0 ? 2U : 1U, 7});
    comm.issue(base(CollectiveKind::AllReduce, buffer)).wait();
    device_here()->synchronize();
  });
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
}

// As processes name a group: by its parent, how many of the same members were made before, and those.
TEST(Mix, TellsGroupsOfFewRanksApart) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t parent = 0; parent < 8; ++parent)
    for (std::uint64_t turn = 0; turn < 8; ++turn)
      for (unsigned members = 1; members < 256; ++members) {
        std::uint64_t key = mix(parent, turn);
        for (std::uint64_t rank = 0; rank < 8; ++rank)
          if ((members >> rank & 1U) != 0) key = mix(key, rank);
        keys.insert(key);
      }
  EXPECT_EQ(keys.size(), 8U * 8 * 255);
}

TEST(Collective, ALaunchIsItsCollectivesInTheirOrder) {
  Collective one, other;
  one.kind = other.kind = CollectiveKind::AllReduce;
  one.extent = 4, other.extent = 5;
  one.where = {"train.cpp", 88};
  const auto launch = [](std::vector<Collective> list) {
    return launch_of(std::make_shared<const std::vector<Collective>>(std::move(list)), 2);
  };
  const Collective both = launch({one, other});
  EXPECT_TRUE(is_launch(both) && both.control_only);
  EXPECT_FALSE(is_launch(one) || is_launch(Collective()));
  EXPECT_EQ(describe(both, 2), "a launch of 2 recorded collectives");
  EXPECT_EQ(location_of(both.where), "train.cpp:88");
  EXPECT_EQ(fingerprint(both, 2), fingerprint(launch({one, other}), 2));
  for (const Collective& differs : {launch({other, one}), launch({one}), Collective()})
    EXPECT_NE(fingerprint(both, 2), fingerprint(differs, 2));
  EXPECT_EQ(fingerprints(*both.launched, 2).size(), 2U);
}

}  // namespace
}  // namespace coshard::testing
