// Who orders operations of different communicators, and that no schedule of what the communicators
// have queued hangs: all schedules of three communicators are searched (fake_schedules.h).
#include "runtime/comm/nccl/nccl_order.h"

#include <cstdio>
#include <cstdlib>

#include "runtime/comm/nccl/nccl_api.h"
#include "runtime/device/graph.h"
#include "tests/runtime/comm/nccl/nccl_ranks.h"
#include "tests/support/fake_cuda/fake_schedules.h"

namespace coshard::testing {
namespace {

constexpr const char* kVariable = "NCCL_LAUNCH_ORDER_IMPLICIT";

NcclOrderFacts all_for_nccl() {
  return {.at_start = "1", .now = "1", .library = 22809, .driver = 12090};
}

TEST(NcclOrderRule, NcclOrdersIfTheProcessBeganSo) {
  EXPECT_TRUE(nccl_order_of(all_for_nccl()).by_nccl);
  EXPECT_TRUE(nccl_order_of(all_for_nccl()).recordings);
  EXPECT_FALSE(nccl_order_of({}).by_nccl);
}

TEST(NcclOrderRule, EachConditionAloneLeavesItToEvents) {
  const auto without = [](auto change) {
    NcclOrderFacts facts = all_for_nccl();
    change(facts);
    const NcclOrder order = nccl_order_of(facts);
    EXPECT_FALSE(order.recordings && !order.by_nccl);
    return !order.by_nccl;
  };
  EXPECT_TRUE(without([](auto& facts) { facts.at_start = ""; }));
  EXPECT_TRUE(without([](auto& facts) { facts.at_start = "0"; }));
  EXPECT_TRUE(without([](auto& facts) { facts.now = ""; }));
  EXPECT_TRUE(without([](auto& facts) { facts.now = "0"; }));
  EXPECT_TRUE(without([](auto& facts) { facts.library = 22599; }));
  EXPECT_TRUE(without([](auto& facts) { facts.driver = 12020; }));
  EXPECT_TRUE(without([](auto& facts) { facts.without_kernels = true; }));
  EXPECT_TRUE(without([](auto& facts) { facts.plugin = true; }));
}

TEST(NcclOrderRule, OldDriversLeaveRecordingsToEvents) {
  NcclOrderFacts facts = all_for_nccl();
  facts.driver = 12080;
  EXPECT_TRUE(nccl_order_of(facts).by_nccl);
  EXPECT_FALSE(nccl_order_of(facts).recordings);
}

TEST(NcclOrderRule, AVariableSetLaterDidNotBeginTheProcess) {
  ::setenv("COSHARD_TEST_SET_LATER", "1", 1);
  EXPECT_EQ(variable_at_start("COSHARD_TEST_SET_LATER"), "");
  EXPECT_EQ(variable_at_start("COSHARD_TEST_DEVICE"), std::getenv("COSHARD_TEST_DEVICE"));
  ::unsetenv("COSHARD_TEST_SET_LATER");
}

// Three communicators of all ranks, with a buffer each.
struct ThreeComms {
  NcclRank& mine;
  std::vector<std::shared_ptr<Communicator>> comms;
  std::vector<std::unique_ptr<NcclNumbers>> numbers;
  std::unique_ptr<NcclNumbers> all;
  std::unique_ptr<DeviceGraph> graph;

  explicit ThreeComms(NcclRank& rank) : mine(rank) {
    std::vector<int> ranks;
    for (int r = 0; r < rank.comm->size(); ++r) ranks.push_back(r);
    const auto first = make_nccl_communicator(rank.host->subgroup(ranks, "a"), rank.device);
    comms = {first, first->subgroup(ranks, "b"), first->subgroup(ranks, "c")};
    all = std::make_unique<NcclNumbers>(rank, std::vector<float>(4 * ranks.size(), 1));
    for (std::size_t i = 0; i < 3; ++i) {
      numbers.push_back(std::make_unique<NcclNumbers>(rank, std::vector<float>(4, 1)));
      sum(i).wait();  // makes its connections
    }
    gather(1).wait();
    rank.device->synchronize();
  }
  Work sum(std::size_t i) const { return comms[i]->issue(nccl_sum_of(*numbers[i])); }
  // Of two rows, which a kernel puts in their places.
  Work gather(std::size_t i) const {
    Collective c;
    c.kind = CollectiveKind::AllGather;
    c.outer = 2;
    c.extent = 2 * comms[i]->size();
    c.send = numbers[i]->buffer->data();
    c.recv = all->buffer->data();
    return comms[i]->issue(c);
  }
};

using Program = std::function<void(ThreeComms&)>;
using Trace = std::vector<FakeDriver::Queued>;
using Found = FakeSchedules::Found;

struct TraceSetting {
  int ranks = 2;
  Program before = {};          // not searched
  bool completes = true;        // else the communicators are given up
  int driver = CUDART_VERSION;  // what the communicators see
};

// What `program` queues on the ranks' devices.
Trace queued_by(const Program& program, const TraceSetting& setting = {}) {
  Trace trace;
  on_nccl_ranks({.ranks = setting.ranks}, [&](NcclRank& mine) {
    const auto meet = [&] { mine.host->issue(Collective()).wait(); };
    meet();
    FakeDriver::get().set_driver_version(setting.driver);
    ThreeComms three(mine);
    FakeDriver::get().set_driver_version(CUDART_VERSION);  // what new devices need
    if (setting.before) setting.before(three);
    meet();
    if (mine.rank == 0) FakeDriver::get().keep_queued();
    meet();
    program(three);
    meet();
    if (mine.rank == 0) trace = FakeDriver::get().take_queued();
    meet();
    for (const auto& comm : three.comms)
      if (!setting.completes) comm->poison("the trace is taken");
  });
  return trace;
}

// All at once, as by when_all.
void all_at_once(ThreeComms& three) {
  std::vector<Work> works;
  for (std::size_t i = 0; i < 3; ++i) works.push_back(three.sum(i));
  for (const Work& work : works) work.wait();
}

// The first is in flight beside the others, as gradients are beside a layer.
void one_beside_two(ThreeComms& three) {
  const Work first = three.sum(0);
  three.gather(1).wait();
  three.sum(2).wait();
  first.wait();
}

void in_opposite_orders(ThreeComms& three) {
  std::vector<Work> works;
  for (std::size_t i = 0; i < 3; ++i) works.push_back(three.sum(three.mine.rank == 0 ? i : 2 - i));
}

void record_all(ThreeComms& three) {
  const auto recording = three.mine.device->record_graph();
  all_at_once(three);
  three.graph = recording->finish();
}

void launch_graph(ThreeComms& three) { three.graph->launch(); }

void launch_between_others(ThreeComms& three) {
  const Work first = three.sum(2);
  three.graph->launch();
  const Work last = three.sum(0);
  first.wait();
  last.wait();
}

class NcclSchedules : public ::testing::Test {
 protected:
  void SetUp() override { set_fake_nccl_order({}); }
  void TearDown() override {
    set_fake_nccl_order({});
    if (variable_at_start(kVariable).empty())
      ::unsetenv(kVariable);
    else
      ::setenv(kVariable, variable_at_start(kVariable).c_str(), 1);
  }
  static void order_by_events() { ::unsetenv(kVariable); }
  // False if this process did not begin so.
  static bool order_by_nccl() {
    set_fake_nccl_order({});
    ::setenv(kVariable, "1", 1);
    return variable_at_start(kVariable) == "1";
  }
  // The library believes that NCCL does it, and NCCL does not.
  static bool no_order() {
    const bool left_to_nccl = order_by_nccl();
    set_fake_nccl_order(false);
    return left_to_nccl;
  }
  static Found search(const Trace& trace, int queues, int residents) {
    const Found found = FakeSchedules::search_all(trace, queues, residents);
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    std::printf("queues %d, residents %d: %llu schedules (%llu states), %llu hang%s%s\n", queues,
                residents, number(found.schedules), number(found.states), number(found.hangs),
                found.hangs > 0 ? ": " : "", found.example.c_str());
    return found;
  }
  // With a queue for each stream.
  static Found search_apart(const Trace& trace, int residents) {
    FakeSchedules::Places apart;
    for (const auto& op : trace) apart[{op.device, op.stream}] = op.stream;
    return FakeSchedules(trace, apart, residents).search();
  }
  static void none_hangs(const Trace& trace, int first = 1, int last = 4) {
    for (int queues = first; queues <= last; ++queues)
      for (int residents = 1; residents <= 3; ++residents)
        EXPECT_EQ(search(trace, queues, residents).hangs, 0U);
  }
};

#define NEEDS_THE_VARIABLE(order) \
  if (!(order)) GTEST_SKIP() << "the process has to begin with NCCL_LAUNCH_ORDER_IMPLICIT=1"

TEST_F(NcclSchedules, NoneHangsByEvents) {
  order_by_events();
  none_hangs(queued_by(all_at_once));
  none_hangs(queued_by(one_beside_two));
  none_hangs(queued_by(all_at_once, {.ranks = 3}), 2, 2);
}

TEST_F(NcclSchedules, NoneHangsByNcclsOrder) {
  NEEDS_THE_VARIABLE(order_by_nccl());
  none_hangs(queued_by(all_at_once));
  none_hangs(queued_by(one_beside_two));
  none_hangs(queued_by(all_at_once, {.ranks = 3}), 2, 2);
}

// Operations of several communicators run at a time only by NCCL's order.
TEST_F(NcclSchedules, OnlyNcclsOrderLetsOperationsOverlap) {
  NEEDS_THE_VARIABLE(order_by_nccl());
  const auto overlap = [](const Trace& trace) {
    return search(trace, 2, 2).schedules > search(trace, 2, 1).schedules;
  };
  EXPECT_TRUE(overlap(queued_by(all_at_once)));
  order_by_events();
  EXPECT_FALSE(overlap(queued_by(all_at_once)));
}

// All ranks issue in the same order; with one queue, the device keeps it.
TEST_F(NcclSchedules, SomeHangWithoutAnOrder) {
  NEEDS_THE_VARIABLE(no_order());
  for (const Program& program : {Program(all_at_once), Program(one_beside_two)}) {
    const Trace trace = queued_by(program);
    for (int queues = 1; queues <= 4; ++queues) {
      const Found found = search(trace, queues, 1);
      EXPECT_EQ(found.hangs > 0, queues > 1);
      EXPECT_LT(found.hangs, found.schedules);
    }
  }
}

// Of three collectives each of three ranks begins another two.
TEST_F(NcclSchedules, ThreeRanksHangWithoutAnOrder) {
  NEEDS_THE_VARIABLE(no_order());
  const Trace trace = queued_by(all_at_once, {.ranks = 3});
  EXPECT_GT(search_apart(trace, 2).hangs, 0U);
  EXPECT_EQ(search_apart(trace, 3).hangs, 0U);
}

// The process has begun without it: events, or the field of NCCL 2.31.
TEST_F(NcclSchedules, NoneHangsIfTheVariableIsSetLate) {
  if (!variable_at_start(kVariable).empty()) GTEST_SKIP() << "the process began with the variable";
  on_nccl_ranks({.ranks = 2}, [](NcclRank&) {});  // NCCL reads it
  ::setenv(kVariable, "1", 1);
  none_hangs(queued_by(all_at_once));
}

// A program's mistake, which no order mends.
TEST_F(NcclSchedules, OppositeOrdersOfIssueHangByEvents) {
  ::testing::internal::CaptureStderr();
  order_by_events();
  const TraceSetting setting = {.completes = false};
  const Found events = search(queued_by(in_opposite_orders, setting), 4, 3);
  EXPECT_EQ(events.hangs, events.schedules);
  if (no_order()) {
    const Found none = search(queued_by(in_opposite_orders, setting), 4, 1);
    EXPECT_GT(none.hangs, 0U);
    EXPECT_LT(none.hangs, none.schedules);
  }
  ::testing::internal::GetCapturedStderr();
}

TEST_F(NcclSchedules, NoneHangsBesideARecordedStep) {
  order_by_events();
  for (const bool nccl : {false, true}) {
    if (nccl && !order_by_nccl()) continue;
    const Trace trace = queued_by(launch_between_others, {.before = record_all});
    for (int residents = 1; residents <= 3; ++residents) {
      EXPECT_EQ(search(trace, 1, residents).hangs, 0U);
      EXPECT_EQ(search_apart(trace, residents).hangs, 0U);
    }
  }
}

// With drivers that know no launch events in graphs. A graph's streams are drawn: several launches.
TEST_F(NcclSchedules, OldDriversLeaveRecordedStepsToEvents) {
  NEEDS_THE_VARIABLE(no_order());
  for (const int driver : {12080, 12090}) {
    std::uint64_t hangs = 0;
    for (int i = 0; i < 8; ++i)
      hangs +=
          search_apart(queued_by(launch_graph, {.before = record_all, .driver = driver}), 1).hangs;
    EXPECT_EQ(hangs > 0, driver == 12090);
  }
}

}  // namespace
}  // namespace coshard::testing
