#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/runtime/trace_range.h>

namespace coshard::testing {
namespace {

Task<void> make_groups(World& world) {
  const std::vector<int> even{0, 2}, odd{1, 3};
  const auto first = world.group(even, "tp");
  const auto second = world.group(odd, "tp");
  const bool is_even = world.rank() % 2 == 0;
  EXPECT_EQ(first != nullptr, is_even);
  EXPECT_EQ(second != nullptr, !is_even);
  const auto& mine = is_even ? first : second;
  EXPECT_EQ(mine->size(), 2);
  EXPECT_EQ(mine->rank(), world.rank() / 2);
  EXPECT_EQ(mine->name(), "tp");
  const std::uint64_t before = world.communicator()->issued();
  EXPECT_EQ(world.group(even, "tp"), first);
  EXPECT_EQ(world.communicator()->issued(), before);
  EXPECT_EQ(world.groups(), 1U);
  const std::vector<int> twice{2, 0, 2}, strange{0, 4};
  EXPECT_THROW(world.group(twice, "tp"), Error);
  EXPECT_THROW(world.group(strange, "tp"), Error);
  co_return;
}

Task<void> make_a_group_of_some(World& world) {
  const std::vector<int> some{2, 0};
  if (world.rank() == 1) co_return;  // the others do not wait for it
  const auto group = world.group(some, "odd");
  EXPECT_EQ(group->rank(), world.rank() == 2 ? 0 : 1);
  Collective barrier;
  group->issue(barrier).wait();
}

TEST(World, OnlyItsMembersMakeAGroup) { run_ranks({.ranks = 3}, make_a_group_of_some); }

TEST(World, MakesAGroupOnceAndSharesIt) { run_ranks({.ranks = 4}, make_groups); }

TEST(World, HasACommunicatorForFilesWithAnOrderOfItsOwn) {
  run_ranks({.ranks = 3}, [](World& world) -> Task<void> {
    if (world.rank() == 0) world.files();  // made by each rank when it is needed there
    const std::uint64_t before = world.communicator()->issued();
    Collective c;
    c.kind = CollectiveKind::Barrier;
    Work work = world.files().issue(c);
    co_await work;
    EXPECT_EQ(world.files().size(), 3);
    EXPECT_EQ(world.files().rank(), world.rank());
    EXPECT_EQ(world.files().issued(), 1U);
    EXPECT_EQ(world.communicator()->issued(), before);
  });
}

struct Log final : Observer {
  std::vector<std::string> lines;
  void planned(std::string_view steps, std::int64_t bytes) override {
    lines.push_back(str_cat("planned ", steps, " ", bytes));
  }
  void issued(const CommEvent& event, std::int64_t) override {
    lines.push_back(str_cat("issued ", to_string(event.kind)));
  }
  void ready(const CommEvent& event, std::int64_t, std::int64_t, std::int64_t) override {
    lines.push_back(str_cat("ready ", to_string(event.kind)));
  }
  void computed(std::string_view op, ComputeClass, std::int64_t, std::int64_t) override {
    lines.push_back(str_cat("computed ", op));
  }
  void module_enter(std::string_view path) override { lines.push_back(str_cat("enter ", path)); }
  void module_exit(std::string_view path) override { lines.push_back(str_cat("exit ", path)); }
  void backward_enter() override { lines.push_back("backward"); }
  void backward_exit() override { lines.push_back("forward"); }
  void range_enter(std::string_view name) override { lines.push_back(str_cat("begin ", name)); }
  void range_exit(std::string_view name) override { lines.push_back(str_cat("end ", name)); }
};

Task<void> observe(World& world) {
  Log one, two;
  EXPECT_FALSE(world.observed());
  world.observer().planned("nobody", 1);
  world.add_observer(&one);
  world.add_observer(&two);
  EXPECT_TRUE(world.observed());
  world.observer().planned("S(0)->R", 8);
  Collective barrier;
  world.communicator()->issue(barrier).wait();
  world.observer().computed("matmul", ComputeClass::Gemm, 1, 2);
  world.observer().module_enter("layers.0");
  world.observer().module_exit("layers.0");
  world.observer().backward_enter();
  world.observer().backward_exit();
  { const TraceRange range("step 1"); }
  const std::vector<std::string> all{
      "planned S(0)->R 8", "issued barrier", "ready barrier", "computed matmul", "enter layers.0",
      "exit layers.0",     "backward",       "forward",       "begin step 1",    "end step 1"};
  EXPECT_EQ(one.lines, all);
  EXPECT_EQ(two.lines, all);
  world.remove_observer(&one);
  world.communicator()->issue(barrier).wait();
  EXPECT_EQ(one.lines.size(), all.size());
  EXPECT_EQ(two.lines.size(), all.size() + 2);
  world.remove_observer(&two);
  EXPECT_FALSE(world.observed());
  world.communicator()->issue(barrier).wait();
  EXPECT_EQ(two.lines.size(), all.size() + 2);
  co_return;
}

TEST(World, TellsAllItsObservers) { run_ranks({.ranks = 2}, observe); }

// Lives as long as its world, and hears what happens in it.
struct Standing final : Observer {
  static inline std::atomic<bool> wanted{false};
  static inline std::atomic<int> alive{0}, heard{0};
  Standing() { ++alive; }
  ~Standing() override { --alive; }
  void planned(std::string_view, std::int64_t) override { ++heard; }
};
const bool standing = observe_worlds([](int rank) -> std::unique_ptr<Observer> {
  if (!Standing::wanted || rank == 1) return nullptr;
  return std::make_unique<Standing>();
});

TEST(World, OwnsTheObserversThatObserveWorldsMakesForIt) {
  Standing::heard = 0;
  Standing::wanted = true;
  run_ranks({.ranks = 3}, [](World& world) -> Task<void> {
    EXPECT_EQ(world.observed(), world.rank() != 1);
    EXPECT_GE(Standing::alive, world.observed() ? 1 : 0);
    world.observer().planned("S(0)->R", 8);
    co_return;
  });
  Standing::wanted = false;
  EXPECT_EQ(Standing::heard, 2);
  EXPECT_EQ(Standing::alive, 0);
}

}  // namespace
}  // namespace coshard::testing
