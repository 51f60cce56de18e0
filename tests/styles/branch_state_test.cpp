// What a program sets for a while belongs to the branch that sets it: held across awaits it is seen
// neither by siblings nor, afterwards, by the parent, however the branch ends.
#include <algorithm>
#include <chrono>
#include <functional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/in_order.h>
#include <coshard/runtime/launch/simulate.h>
#include "dtensor/redistribute/deferred.h"
#include "tests/styles/support.h"
#include "tests/support/ends.h"

namespace coshard::branch_state {
namespace {
using namespace std::chrono_literals;
using testing::CountingObserver;
using testing::quick_options;
using Values = std::vector<double>;

void run_everywhere(const Program& program) {
  WorldOptions options = quick_options(2);
  EXPECT_NO_THROW(run_ranks(options, program));
  options.rank_threads = 1;
  EXPECT_NO_THROW(run_ranks(options, program));
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    EXPECT_NO_THROW(simulate(quick_options(2), program, seed)) << seed;
}
DeviceMesh mesh_of(World& world, const std::string& name) {
  return init_device_mesh(world, {world.size()}, {name});
}
Task<void> meet(World& world) {
  const Work meeting = world.communicator()->issue(Collective());
  co_await meeting;
}

// --- guards ---

struct State {
  bool records = true, defers = false;
  std::string mesh = "outer", module = "";

  friend bool operator==(const State&, const State&) = default;
  friend std::ostream& operator<<(std::ostream& out, const State& s) {
    return out << (s.records ? "records" : "does not record") << (s.defers ? ", defers" : "")
               << ", on " << s.mesh << ", in '" << s.module << "'";
  }
};
State state_of(World& world) {
  State state{grad_enabled(), redistributes_are_deferred(), DefaultMesh::current("test").names()[0],
              ""};
  if (const auto module = world.module()) state.module = *module;
  return state;
}

// Runs `inside` while it holds something across the awaits.
using Hold = Task<void> (*)(World& world, Task<void> inside);
Task<void> holds_nothing(World&, Task<void> inside) { co_await std::move(inside); }
Task<void> holds_no_grad(World&, Task<void> inside) {
  const NoGradGuard guard;
  co_await std::move(inside);
}
Task<void> holds_a_mesh(World& world, Task<void> inside) {
  const DefaultMesh scope(mesh_of(world, "inner"));
  co_await std::move(inside);
}
Task<void> holds_deferring(World&, Task<void> inside) {
  const DeferRedistributes guard;
  co_await std::move(inside);
}
struct Around : Module {
  struct Child : Module {
    explicit Child(Task<void> task) : inside(std::move(task)) {}
    Task<Tensor> run(Tensor x) override {
      co_await std::move(inside);
      co_return x;
    }
    Task<void> inside;
  };
  explicit Around(Task<void> task) : child(std::move(task)) { register_module("child", child); }
  Task<Tensor> run(Tensor x) override { return child.forward(std::move(x)); }
  Child child;
};
Task<void> holds_a_module(World& world, Task<void> inside) {
  Around module(std::move(inside));
  Task<Tensor> forward = module.forward(ones(world.device(), {1}));
  co_await std::move(forward);
}
Task<void> holds_all(World& world, Task<void> inside) {
  return holds_no_grad(
      world, holds_a_mesh(world, holds_deferring(world, holds_a_module(world, std::move(inside)))));
}

struct Guard {
  const char* name;
  Hold hold;
  State seen;  // while it is held
};
std::vector<Guard> guards() {
  return {{"NoGradGuard", holds_no_grad, {.records = false}},
          {"DefaultMesh", holds_a_mesh, {.mesh = "inner"}},
          {"DeferRedistributes", holds_deferring, {.defers = true}},
          {"Module", holds_a_module, {.module = "child"}},
          {"all", holds_all, {false, true, "inner", "child"}}};
}

// Sees `want` before and after awaits of every queue; then ends as it is told.
using Ending = std::function<Task<void>()>;
Task<void> looks(World& world, State want, Ending end) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(state_of(world), want);
    co_await yield();
    EXPECT_EQ(state_of(world), want) << "after a yield";
    co_await sleep_for(1ms);
    EXPECT_EQ(state_of(world), want) << "after a sleep";
    const Work none;
    co_await none;
    EXPECT_EQ(state_of(world), want) << "after a wait";
    co_await in_order(sleep_for(1ms));
    EXPECT_EQ(state_of(world), want) << "in order";
  }
  Task<void> ending = end();
  co_await std::move(ending);
}
Task<void> ends_well() { co_return; }
Task<void> throws() {
  co_await yield();
  throw std::runtime_error("boom");
}
Task<void> sleeps() { return sleep_for(1h); }  // until it is cancelled

// How the branch that holds and its siblings end.
struct Endings {
  Ending holder, siblings;
};
Task<void> beside_each_other(World& world, Guard guard, State outer, Endings ends) {
  std::vector<Task<void>> tasks;
  tasks.push_back(looks(world, outer, ends.siblings));
  tasks.push_back(guard.hold(world, looks(world, guard.seen, ends.holder)));
  tasks.push_back(looks(world, outer, ends.siblings));
  Task<void> all = when_all(std::move(tasks));
  try {
    co_await std::move(all);
  } catch (const std::runtime_error&) {
  }
}
Task<void> for_a_while(World& world, Guard guard) {
  const auto work = [&](std::stop_token) {
    return guard.hold(world, looks(world, guard.seen, sleeps));
  };
  Task<void> bounded = with_deadline(50ms, "for a while", work);
  EXPECT_THROW(co_await std::move(bounded), Error);
}
Task<void> guards_in_siblings(World& world) {
  const CountingObserver watched(world);  // so that there is a module path
  const DefaultMesh scope(mesh_of(world, "outer"));
  const State before = state_of(world);
  EXPECT_EQ(before, State());
  const std::vector<Endings> endings{
      {ends_well, ends_well}, {throws, sleeps}, {sleeps, throws}, {throws, throws}};
  for (const Guard& guard : guards()) {
    for (const Endings& ends : endings) {
      Task<void> task = beside_each_other(world, guard, before, ends);
      co_await std::move(task);
      EXPECT_EQ(state_of(world), before) << guard.name;
    }
    Task<void> bounded = for_a_while(world, guard);
    co_await std::move(bounded);
    EXPECT_EQ(state_of(world), before) << guard.name << ", bounded";
  }
  Task<void> after = meet(world);
  co_await std::move(after);
}
TEST(BranchState, OfAGuardHeldAcrossAwaitsIsNotSeenBySiblingsNorAfterwards) {
  run_everywhere(guards_in_siblings);
}

Task<void> children_of_who_holds(World& world, State want) {
  Guard none{"nothing", holds_nothing, want};
  Task<void> task = beside_each_other(world, none, want, {ends_well, ends_well});
  co_await std::move(task);
}
Task<void> guards_around_siblings(World& world) {
  const CountingObserver watched(world);
  const DefaultMesh scope(mesh_of(world, "outer"));
  for (const Guard& guard : guards()) {
    Task<void> task = guard.hold(world, children_of_who_holds(world, guard.seen));
    co_await std::move(task);
    EXPECT_EQ(state_of(world), State()) << guard.name;
  }
}
TEST(BranchState, OfAGuardThatTheParentHoldsIsSeenByItsChildren) {
  run_everywhere(guards_around_siblings);
}

// --- the random stream ---

// Draws `count` times, after a nap before each.
Task<Values> draws(World& world, int count, std::chrono::milliseconds nap) {
  Values drawn;
  for (int i = 0; i < count; ++i) {
    if (nap > 0ms) co_await sleep_for(nap);
    drawn.push_back(rand(world.device(), {1}, DType::F64).item());
    co_await yield();
  }
  co_return drawn;
}
Values draw_here(World& world, int count) {
  Values drawn;
  for (int i = 0; i < count; ++i) drawn.push_back(rand(world.device(), {1}, DType::F64).item());
  return drawn;
}

struct Drawn {
  Values first, second, parent;
};
// Two siblings, then the parent.
Task<Drawn> siblings_draw(World& world, Task<Values> first, Task<Values> second) {
  manual_seed(11);
  auto both = when_all(std::move(first), std::move(second));
  auto [a, b] = co_await std::move(both);
  co_return Drawn{a, b, draw_here(world, 3)};
}
Task<void> draws_beside_siblings(World& world) {
  Task<Drawn> plainly = siblings_draw(world, draws(world, 3, 0ms), draws(world, 3, 0ms));
  const Drawn want = co_await std::move(plainly);
  for (const int count : {0, 3, 7}) {
    for (const auto nap : {0ms, 1ms, 3ms}) {  // the other comes before, between and after
      Task<Drawn> woven = siblings_draw(world, draws(world, 3, 1ms), draws(world, count, nap));
      const Drawn got = co_await std::move(woven);
      EXPECT_EQ(got.first, want.first) << count << " draws beside";
      EXPECT_EQ(got.parent, want.parent) << count << " draws beside";
      woven = siblings_draw(world, draws(world, count, nap), draws(world, 3, 1ms));
      const Drawn swapped = co_await std::move(woven);
      EXPECT_EQ(swapped.second, want.second) << count << " draws beside";
      EXPECT_EQ(swapped.parent, want.parent) << count << " draws beside";
    }
  }
}
TEST(BranchState, ASiblingDrawsTheSameNumbersWhateverTheOthersDrawAndWhen) {
  run_everywhere(draws_beside_siblings);
}

Task<std::vector<Values>> nested_draws(World& world) {
  Task<Values> one = draws(world, 2, 0ms), other = draws(world, 2, 0ms);
  auto both = when_all(std::move(one), std::move(other));
  auto [a, b] = co_await std::move(both);
  co_return std::vector<Values>{a, b, draw_here(world, 2)};
}
Task<void> all_draws_differ(World& world) {
  manual_seed(11);
  Values all = draw_here(world, 3);
  for (int round = 0; round < 2; ++round) {  // a second when_all is another one
    auto both = when_all(nested_draws(world), nested_draws(world));
    const auto [left, right] = co_await std::move(both);
    for (const auto& branch : {left, right})
      for (const Values& drawn : branch) all.insert(all.end(), drawn.begin(), drawn.end());
    for (const double value : draw_here(world, 2)) all.push_back(value);
  }
  const std::size_t count = all.size();
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  EXPECT_EQ(all.size(), count);
}
TEST(BranchState, NoTwoBranchesDrawTheSameNumbers) { run_everywhere(all_draws_differ); }

Task<Values> seeds_then_throws(World& world, bool fails) {
  manual_seed(99);
  Task<Values> drawing = draws(world, 2, 1ms);
  const Values drawn = co_await std::move(drawing);
  if (fails) throw std::runtime_error("boom");
  co_return drawn;
}
// What comes after a when_all hangs on that there was one, and on nothing in it.
Task<void> the_parents_stream_goes_on(World& world) {
  manual_seed(11);
  take_stream();
  const RandomState before = random_state();
  draw_here(world, 1);
  const Values want = draw_here(world, 3);
  for (const bool fails : {false, true}) {
    set_random_state(before);
    Task<Values> seeds = seeds_then_throws(world, fails), other = draws(world, 5, 2ms);
    auto both = when_all(std::move(seeds), std::move(other));
    try {
      const auto [seeded, beside] = co_await std::move(both);
      EXPECT_FALSE(fails);
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(fails);
    }
    EXPECT_EQ(random_state().seed, before.seed);
    EXPECT_EQ(random_state().next_stream, before.next_stream + 1);
    EXPECT_EQ(draw_here(world, 3), want);
  }
}
TEST(BranchState, AWhenAllTakesOneOfTheParentsRandomStreamsHoweverItEnds) {
  run_everywhere(the_parents_stream_goes_on);
}

}  // namespace
}  // namespace coshard::branch_state
