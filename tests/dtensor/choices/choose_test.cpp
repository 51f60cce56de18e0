// Branch and bound against trying everything.
#include "dtensor/ops/choose.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "dtensor/ops/letters.h"

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

Cost cost_of(const Call& call, std::span<const Layout> now, const Choice& choice,
             const MeshCosts& mesh) {
  Cost cost{false, 0};
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Transition change = time_to_redistribute(mesh, call.in[i].shape, 4, now[i], choice.in[i]);
    cost.first = cost.first || change.communicates;
    cost.second += change.time;
  }
  for (std::size_t i = 0; i < choice.out.size(); ++i)
    cost.second += time_to_reduce(mesh, call.out[i].shape, 4, choice.out[i]);
  return cost;
}

void try_all(const Call& call, std::span<const Layout> now, const MeshCosts& mesh, Choice& made,
             const Parts& parts, Cost& best) {
  const auto m = static_cast<std::size_t>(made.in[0].ndim());
  if (m == mesh.sizes.size()) {
    best = std::min(best, cost_of(call, now, made, mesh));
    return;
  }
  std::vector<Placement> here;
  for (const Layout& layout : now) here.push_back(layout[static_cast<int>(m)]);
  for (const Strategy& s : strategies_of(call.rule, mesh.sizes[m], parts, here)) {
    Choice longer = made;
    for (std::size_t i = 0; i < s.in.size(); ++i) longer.in[i].push_back(s.in[i]);
    for (std::size_t i = 0; i < s.out.size(); ++i) longer.out[i].push_back(s.out[i]);
    Parts inner = parts;
    if (s.letter) inner[s.letter] *= mesh.sizes[m];
    try_all(call, now, mesh, longer, inner, best);
  }
}

TEST(Choose, NoCombinationOfAllMeshDimensionsIsCheaper) {
  std::mt19937 random(7);
  const auto any = [&](std::initializer_list<std::int64_t> list) {
    return *(list.begin() + static_cast<std::ptrdiff_t>(random() % list.size()));
  };
  const std::vector<std::vector<int>> meshes{{4}, {2, 4}, {4, 2}, {2, 2, 2}};
  for (int run = 0; run < 400; ++run) {
    const Call call = run % 2 ? product(any({64, 1024}), any({64, 512}), any({64, 4096}))
                              : sum_of_two(any({64, 1024}), any({64, 512}));
    const std::vector<int>& sizes = meshes[random() % meshes.size()];
    std::vector<LinkCost> links;
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
    Cost best{true, kNever};
    Choice made{std::vector<Layout>(now.size()), std::vector<Layout>(1)};
    try_all(call, now, mesh, made, Parts(), best);
    const Cost found = cost_of(call, now, *choice, mesh);
    EXPECT_EQ(found.first, best.first) << now[0] << now[1];
    EXPECT_NEAR(found.second, best.second, 1e-9 * best.second) << now[0] << now[1];
  }
}

// Where one mesh dimension alone would rather gather the weight, and both together the activations.
TEST(Choose, MeshDimensionsAreDecidedTogether) {
  const Call call = product(64, 256, 512);
  const std::vector<int> sizes{4, 4};
  const std::vector<Layout> now{Layout(Shard(0), Shard(2)), Layout(Shard(1), Replicate())};
  const auto choice = choose_layouts(call.rule, call.in, now, call.out, {sizes, {}}, false);
  ASSERT_TRUE(choice);
  Cost best{true, kNever};
  Choice made{std::vector<Layout>(2), std::vector<Layout>(1)};
  try_all(call, now, {sizes, {}}, made, Parts(), best);
  EXPECT_EQ(cost_of(call, now, *choice, {sizes, {}}), best);
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
    if (choice->in[0][m].cuts(0)) rows *= sizes[static_cast<std::size_t>(m)];
  EXPECT_LE(rows, 4) << choice->in[0];
}

}  // namespace
}  // namespace coshard
