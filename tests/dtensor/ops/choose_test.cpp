// Branch and bound against trying everything with the planner.
#include "dtensor/ops/choose.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include <coshard/dtensor/ops/axes.h>
#include "dtensor/redistribute/planner.h"
#include "tests/dtensor/redistribute/layouts.h"

namespace coshard {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Call {
  Rule rule;
  std::vector<TensorInfo> in, out;
};

TensorInfo info(const Shape& shape) { return {shape, DType::F32, true}; }

Call product(std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  Call call;
  call.rule.in = {"abw", "zw"};
  call.rule.out = {"abz"};
  call.rule.strided = true;
  pass_partial(call.rule, "PR", "P", kLinear);
  pass_partial(call.rule, "RP", "P", kLinear);
  call.in = {info({16, rows, inner}), info({columns, inner})};
  call.out = {info({16, rows, columns})};
  return call;
}

Call sum_of_two(std::int64_t rows, std::int64_t columns) {
  Call call;
  call.rule.in = {"abc", "abc"};
  call.rule.out = {"abc"};
  pass_partial(call.rule, "PP", "P", kLinear);
  call.in = {info({16, rows, columns}), info({16, rows, columns})};
  call.out = {info({16, rows, columns})};
  return call;
}

// Whether it moves anything, and the time.
using Cost = std::pair<bool, double>;

// By the planner's plans, each made once.
class Prices {
 public:
  Prices(const Call& call, std::span<const Layout> now, const MeshCosts& mesh)
      : call_(call), now_(now), mesh_(mesh), sizes_(mesh.sizes.begin(), mesh.sizes.end()) {}

  Cost of(const Choice& choice) {
    Cost cost{false, 0};
    for (std::size_t i = 0; i < now_.size(); ++i) {
      const Cost change = change_of(i, choice.in[i]);
      cost.first = cost.first || change.first;
      cost.second += change.second;
    }
    for (std::size_t i = 0; i < choice.out.size(); ++i)
      cost.second += time_to_reduce(call_.out[i].shape, choice.out[i]);
    return cost;
  }

 private:
  Cost change_of(std::size_t i, const Layout& to) {
    const auto [found, is_new] = known_.try_emplace(std::to_string(i) + to_string(to));
    if (!is_new) return found->second;
    Cost cost{false, 0};
    for (int m = 0; m < to.ndim(); ++m)
      if (to[m].is_partial() && !(to[m] == now_[i][m]) && !now_[i][m].is_replicate())
        return found->second = {true, kNever};
    for (const PlanStep& step :
         plan_steps(sizes_, call_.in[i].shape, 4, now_[i], to, mesh_.links)) {
      cost.first = cost.first || communicates(step.kind);
      cost.second += time_of(communicates(step.kind), 4 * step.moved, 4 * step.copied,
                             slowest(mesh_.links, step.dims));
    }
    return found->second = cost;
  }

  // To the cheapest of all layouts without Partials, but for a latency that others may share.
  double time_to_reduce(const Shape& shape, const Layout& from) {
    MeshDims partial = 0;
    for (int m = 0; m < from.ndim(); ++m)
      if (from[m].is_partial()) partial |= 1U << m;
    if (partial == 0) return 0;
    const auto [found, is_new] = known_.try_emplace(to_string(from), true, kNever);
    if (!is_new) return found->second.second;
    std::vector<Placement> placements{Replicate()};
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      placements.push_back(Shard(d));
      for (const int split : {2, 4}) placements.push_back(StridedShard(d, split));
    }
    for (const Layout& to : testing::layouts_of(from.ndim(), placements)) {
      bool kept = true;  // what is sharded already stays
      for (int m = 0; m < from.ndim(); ++m)
        kept = kept && (from[m].is_partial() || from[m] == to[m]);
      if (kept && !is_odd(to))
        found->second.second = std::min(found->second.second, time_of_plan(shape, from, to));
    }
    return found->second.second -= slowest(mesh_.links, partial).latency;
  }

  // A StridedShard whose split is not that of shards within.
  bool is_odd(const Layout& layout) const {
    for (int m = 0; m < layout.ndim(); ++m) {
      if (!layout[m].is_strided()) continue;
      bool fits = false;
      int within = 1;
      for (int k = m + 1; k < layout.ndim(); ++k)
        if (layout[k].is_sharded(layout[m].dim))
          fits = fits || (within *= sizes_[static_cast<std::size_t>(k)]) == layout[m].split;
      if (!fits) return true;
    }
    return false;
  }

  double time_of_plan(const Shape& shape, const Layout& from, const Layout& to) const {
    double time = 0;
    for (const PlanStep& step : plan_steps(sizes_, shape, 4, from, to, mesh_.links))
      time += step.time;
    return time;
  }

  const Call& call_;
  std::span<const Layout> now_;
  MeshCosts mesh_;
  std::vector<int> sizes_;
  std::map<std::string, Cost> known_;
};

void try_all(const Call& call, std::span<const Layout> now, const MeshCosts& mesh, Choice& made,
             const Parts& parts, Prices& prices, std::pair<Cost, Choice>& best) {
  const auto m = static_cast<std::size_t>(made.in[0].ndim());
  if (m == mesh.sizes.size()) {
    const Cost cost = prices.of(made);
    if (cost < best.first) best = {cost, made};
    return;
  }
  std::vector<Placement> here;
  for (const Layout& layout : now) here.push_back(layout[static_cast<int>(m)]);
  const Strategy whole = strategies_of(call.rule, mesh.sizes[m], parts, here).front();
  for (const Strategy& s : strategies_of(call.rule, mesh.sizes[m], parts, here)) {
    if (here == whole.in && !(s.in == whole.in)) continue;  // replicas stay so
    Choice longer = made;
    for (std::size_t i = 0; i < s.in.size(); ++i) longer.in[i].push_back(s.in[i]);
    for (std::size_t i = 0; i < s.out.size(); ++i) longer.out[i].push_back(s.out[i]);
    Parts inner = parts;
    if (s.axis) inner[s.axis] *= mesh.sizes[m];
    try_all(call, now, mesh, longer, inner, prices, best);
  }
}

// What `choice` costs, and the best of all combinations.
struct Beside {
  Cost found, best;
  Choice choice;  // the best
};
Beside beside_all(const Choice& choice, const Call& call, const std::vector<Layout>& now,
                  const MeshCosts& mesh) {
  std::pair<Cost, Choice> best{{true, kNever}, {}};
  Choice made{std::vector<Layout>(now.size()), std::vector<Layout>(1)};
  Prices prices(call, now, mesh);
  try_all(call, now, mesh, made, Parts(), prices, best);
  return {prices.of(choice), best.first, best.second};
}

TEST(Choose, NoCombinationOfStrategiesIsCheaper) {
  std::mt19937 random(7);
  const auto any = [&](std::initializer_list<std::int64_t> list) {
    return *(list.begin() + static_cast<std::ptrdiff_t>(random() % list.size()));
  };
  const std::vector<std::vector<int>> meshes{{4}, {2, 4}, {4, 2}, {2, 2, 2}};
  for (int run = 0; run < 40; ++run) {
    const Call call = run % 2 ? product(any({64, 1024}), any({64, 512}), any({64, 4096}))
                              : sum_of_two(any({64, 1024}), any({64, 512}));
    const std::vector<int>& sizes = meshes[random() % meshes.size()];
    std::vector<Link> links;
    for (std::size_t m = 0; m < sizes.size(); ++m)
      links.push_back({static_cast<double>(any({1, 5, 100})),
                       static_cast<double>(any({1'000, 10'000, 200'000}))});
    std::vector<Layout> now(call.in.size());
    for (std::size_t i = 0; i < now.size(); ++i)
      for (std::size_t m = 0; m < sizes.size(); ++m) {
        const auto pick = static_cast<int>(random() % (call.in[i].shape.size() + 2));
        now[i].push_back(pick == 0 ? Replicate() : pick == 1 ? Partial() : Shard(pick - 2));
      }
    const MeshCosts mesh{sizes, links};
    const auto choice = choose_layouts(call.rule, call.in, now, call.out, mesh, false);
    ASSERT_TRUE(choice);
    const auto [found, best, other] = beside_all(*choice, call, now, mesh);
    EXPECT_EQ(found.first, best.first) << now[0] << now[1];
    EXPECT_LE(found.second, best.second * 1.0001 + 0.001)
        << now[0] << ' ' << now[1] << call.in[0].shape << call.in[1].shape << " -> "
        << choice->in[0] << ' ' << choice->in[1] << " beside " << other.in[0] << ' ' << other.in[1];
  }
}

// `choice` against all combinations.
void expect_the_best(const Call& call, const std::vector<Layout>& now, const MeshCosts& mesh) {
  const auto choice = choose_layouts(call.rule, call.in, now, call.out, mesh, false);
  ASSERT_TRUE(choice);
  const auto [found, best, other] = beside_all(*choice, call, now, mesh);
  EXPECT_LE(found.second, 1.0001 * best.second + 0.001)
      << now[0] << " -> " << choice->in[0] << " beside " << other.in[0];
}

// Two mesh dimensions shard rows; if the outer one no longer does or begins to, the inner one has
// to cut them anew, over its own link.
TEST(Choose, ACutThatComesOrGoesMovesTheCutsWithinIt) {
  const std::vector<int> sizes{2, 2, 2};
  const Link fast{2, 100'000}, slow{50, 1'000};
  const Placement sum = Partial(), rows = Shard(0), columns = Shard(1), whole = Replicate();
  Call one;
  one.rule.in = one.rule.out = {"ab"};
  one.in = one.out = {info({192, 320})};
  expect_the_best(one, {Layout(sum, sum, rows)}, {sizes, {}});
  one.rule.whole = "b";
  expect_the_best(one, {Layout(sum, columns, rows)}, {sizes, std::array{fast, fast, slow}});
  Call two;
  two.rule.in = {"b", "ab"};
  two.rule.out = {"ab"};
  two.in = {info({192}), info({112, 192})};
  two.out = {info({112, 192})};
  expect_the_best(two, {Layout(rows, rows, rows), Layout(rows, whole, whole)},
                  {sizes, std::array{fast, slow, fast}});
}

// Scattered over the fast dimension first, a sum has little left for the slow one.
TEST(Choose, ALargeSumIsReducedOverEveryMeshDimensionAtItsOwnPace) {
  const std::vector<int> sizes{4, 4};
  Call call;
  call.rule.in = call.rule.out = {"ab"};
  call.in = call.out = {info({192, 320})};
  expect_the_best(call, {Layout(Partial(), Partial())},
                  {sizes, std::array{Link{2, 100'000}, Link{50, 1'000}}});
  expect_the_best(call, {Layout(Partial(), Partial())},
                  {sizes, std::array{Link{50, 1'000}, Link{2, 100'000}}});
}

TEST(Choose, ReplicasAreNotCutForTheSakeOfAnotherMeshDimension) {
  const std::vector<int> sizes{2, 4};
  for (const bool adds : {true, false}) {
    const Call call = adds ? sum_of_two(1024, 64) : product(1024, 64, 64);
    const std::vector<Layout> now{Layout(Replicate(), Partial()), Layout(Replicate(), Replicate())};
    const auto choice = choose_layouts(call.rule, call.in, now, call.out, {sizes, {}}, false);
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->in[0][0], Replicate());
    EXPECT_EQ(choice->out[0][0], Replicate());
  }
}

TEST(Choose, NoRankIsEmptiedByMeshDimensionsTogether) {
  Call call = sum_of_two(64, 64);
  call.in[0].shape = call.in[1].shape = call.out[0].shape = {4, 64, 64};
  call.rule.extra.clear();
  const std::vector<int> sizes{2, 4};  // each alone could cut the four rows
  const std::vector<Layout> now(2, Layout(Partial(), Partial()));
  const auto choice = choose_layouts(call.rule, call.in, now, call.out, {sizes, {}}, false);
  ASSERT_TRUE(choice);
  int rows = 1;
  for (int m = 0; m < 2; ++m)
    if (choice->in[0][m].is_sharded(0)) rows *= sizes[static_cast<std::size_t>(m)];
  EXPECT_LE(rows, 4) << choice->in[0];
}

}  // namespace
}  // namespace coshard
