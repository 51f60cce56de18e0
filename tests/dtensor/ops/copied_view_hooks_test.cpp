// Hooks, retain_grad and requires_grad of views that had to be copied: as those of plain views.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing::copied_view_hooks {
namespace {

using Program = std::function<std::vector<Values>(Tensor leaf)>;

Values whole(const Tensor& x) {
  if (!x.defined()) return {-1};
  const Tensor plain = x.detach();
  return (plain.is_distributed() ? full_tensor(plain) : plain).to_vector();
}

// The program has the same results for a plain leaf of 3 x 2 elements and for shards of it.
void same_everywhere(const Program& program) {
  on_ranks(2, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const auto run = [&](const Tensor& start) {
      Tensor leaf = start;
      leaf.set_requires_grad(true);
      return program(leaf);
    };
    const Tensor start = counting(world, {3, 2}, DType::F64, 0.5);
    const std::vector<Values> want = run(start.detach().clone());
    for (const Layout& layout : {Layout(Replicate()), Layout(Shard(1)), Layout(Shard(0))})
      EXPECT_EQ(run(distribute_tensor(start, mesh, layout)), want) << layout;
    co_return;
  });
}

Tensor times_ten(const Tensor& g) { return g * 10.0; }

TEST(HooksOfCopiedViews, StayWhenAnOptimizerSteps) {
  same_everywhere([](Tensor leaf) {
    const Tensor row = select(leaf, 0, 1);
    register_hook(row, times_ten);
    retain_grad(row);
    std::vector<Values> seen;
    for (int step = 0; step < 3; ++step) {
      run_backward(sum(row * row));
      seen.push_back(whole(leaf.grad()));
      seen.push_back(whole(row.grad()));
      const NoGradGuard off;
      mul_(leaf, 2.0);
    }
    return seen;
  });
}

TEST(HooksOfCopiedViews, StayAfterAWriteOffTheTapeToANonLeaf) {
  same_everywhere([](Tensor leaf) -> std::vector<Values> {
    const Tensor x = leaf * 1.0;
    const Tensor row = select(x, 0, 1), part = narrow(row, 0, 0, 1);
    register_hook(row, times_ten);
    register_hook(part, times_ten);
    retain_grad(row);
    retain_grad(part);
    {
      const NoGradGuard off;
      mul_(x, 2.0);
      mul_(row, 2.0);
    }
    run_backward(sum(row * row) + sum(part * part));
    return {whole(leaf.grad()), whole(row.grad()), whole(part.grad())};
  });
}

TEST(HooksOfCopiedViews, SeeTheGradientOfTheValuesBeforeAWriteOnTheTape) {
  same_everywhere([](Tensor leaf) -> std::vector<Values> {
    const Tensor x = leaf * 1.0;
    const Tensor row = select(x, 0, 1);
    const Tensor before = row * 1.0;
    register_hook(row, times_ten);
    retain_grad(row);
    mul_(x, 2.0);
    run_backward(sum(row * row) + sum(before));
    return {whole(leaf.grad()), whole(row.grad())};
  });
}

TEST(HooksOfCopiedViews, SeeTheGradientOfTheValuesBeforeAWriteThroughTheView) {
  same_everywhere([](Tensor leaf) -> std::vector<Values> {
    const Tensor x = leaf * 1.0;
    const Tensor row = select(x, 0, 1), other = select(x, 0, 1);
    register_hook(row, times_ten);
    register_hook(other, times_ten);
    retain_grad(row);
    retain_grad(other);
    mul_(row, 2.0);
    run_backward(sum(row * row) + sum(other * other) + sum(x));
    return {whole(leaf.grad()), whole(row.grad()), whole(other.grad())};
  });
}

TEST(HooksOfCopiedViews, OfTheNewValuesAreCalled) {
  same_everywhere([](Tensor leaf) -> std::vector<Values> {
    const Tensor x = leaf * 1.0;
    const Tensor row = select(x, 0, 1);
    mul_(x, 2.0);
    register_hook(row, times_ten);
    retain_grad(row);
    run_backward(sum(row * row));
    return {whole(leaf.grad()), whole(row.grad())};
  });
}

TEST(CopiedViews, RequireAGradientOnceWhatTheyShowDoes) {
  same_everywhere([](Tensor leaf) -> std::vector<Values> {
    const Tensor x = leaf.detach().clone();
    const Tensor row = select(x, 0, 1), part = narrow(row, 0, 0, 1);
    const bool before = row.requires_grad();
    mul_(x, leaf);
    const bool after = row.requires_grad(), part_after = part.requires_grad();
    run_backward(sum(row * row) + sum(part));
    return {{double(before), double(after), double(part_after)}, whole(leaf.grad())};
  });
}

TEST(CopiedViews, AreRootsAndInputsOfBackwardOnceWhatTheyShowWasWritten) {
  same_everywhere([](Tensor leaf) -> std::vector<Values> {
    const Tensor x = leaf.detach().clone();
    const Tensor first = select(select(x, 0, 0), 0, 1), row = select(x, 0, 2);
    mul_(x, leaf);
    run_backward(first);
    const Tensor more = leaf * 3.0;
    const Tensor z = more.detach().clone(), part = select(z, 0, 1);
    copy_(z, more);
    const Tensor by_part = run_grad({sum(part * part)}, {part})[0];
    return {
        whole(leaf.grad()), whole(by_part), {double(row.requires_grad()), double(row.is_leaf())}};
  });
}

// An empty copy is filled by a collective that nobody has waited for.
TEST(CopiedViews, EmptyOnesFollowWrites) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    for (const std::int64_t rows : {3, 4, 5, 8})
      for (const Layout& layout : {Layout(StridedShard(0, 2), Shard(0)), Layout(Shard(0), Shard(0)),
                                   Layout(Shard(0), Shard(1)), Layout(Replicate(), Shard(0))}) {
        const Tensor x =
            distribute_tensor(counting(world, {rows, 2}, DType::F64, 0.5), mesh, layout);
        const Tensor none = narrow(x, 0, 1, 0), row = select(x, 0, 2);
        const Tensor none_of_two = narrow(narrow(x, 0, 0, 2), 1, 1, 0);
        mul_(x, 2.0);
        EXPECT_EQ((none + 1.0).numel() + (none_of_two + 1.0).numel(), 0) << layout;
        add_(none, 1.0);
        add_(row, 1.0);
        const Values want = counting(world, {rows, 2}, DType::F64, 1.0).to_vector();
        Values got = whole(x);
        got[4] -= 1;
        got[5] -= 1;
        EXPECT_EQ(got, want) << layout << " of " << rows;
      }
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing::copied_view_hooks
