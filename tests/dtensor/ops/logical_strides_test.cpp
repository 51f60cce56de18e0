// What is a view and what is a copy is decided by the strides that a DTensor would have on one
// device: alike in every layout and on every rank, also on those with one row or none.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing::logical_strides_tests {
namespace {

Values whole(const Tensor& x) {
  if (!x.defined()) return {-1};
  const Tensor plain = x.detach();
  return (plain.is_distributed() ? full_tensor(plain) : plain).to_vector();
}

using Program = std::function<std::vector<Values>(Tensor)>;

// The program has the same results for a plain tensor of this shape and for shards of it.
void same_everywhere(const Shape& shape, const Program& program) {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [&](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {ranks}, {"tp"});
      const Tensor start = counting(world, shape, DType::F64, 0.5);
      const std::vector<Values> want = program(start.detach().clone());
      std::vector<Layout> layouts = {Replicate(), Shard(0), StridedShard(0, 2)};
      if (shape.size() > 1) layouts.push_back(Shard(1));
      for (const Layout& layout : layouts) {
        const Tensor x = distribute_tensor(start, mesh, layout);
        EXPECT_EQ(program(x), want) << layout << " of " << shape << " on " << mesh;
      }
      co_return;
    });
}

TEST(LogicalStrides, SayWhetherContiguousCopies) {
  for (const Shape& shape : {Shape{2, 3}, Shape{4, 3}, Shape{5, 4}, Shape{3, 1}})
    same_everywhere(shape, [](const Tensor& x) -> std::vector<Values> {
      const Tensor column = contiguous(select(x, 1, 0)), turned = contiguous(t(x)),
                   lines = contiguous(x.narrow(0, 0, 2)), one = contiguous(unsqueeze(x, 0));
      mul_(column, 100.0);
      add_(turned, 1000.0);
      mul_(lines, 3.0);
      mul_(one, 2.0);
      return {whole(x), whole(column), whole(turned), whole(lines)};
    });
  same_everywhere({3}, [](Tensor leaf) -> std::vector<Values> {
    leaf.set_requires_grad(true);
    const Tensor c = contiguous(view(leaf, {3, 1}));
    std::vector<Values> seen;
    for (int step = 0; step < 3; ++step) {
      leaf.set_grad(Tensor());
      run_backward(sum(c * c));
      seen.push_back(whole(leaf.grad()));
      const NoGradGuard off;
      mul_(leaf, 0.5);
    }
    return seen;
  });
}

TEST(LogicalStrides, SayWhetherFlattenCopies) {
  for (const Shape& shape : {Shape{2, 3}, Shape{4, 3}, Shape{5, 4}})
    same_everywhere(shape, [](const Tensor& x) -> std::vector<Values> {
      const Tensor turned = flatten(t(x)), columns = flatten(x.narrow(1, 0, 2)),
                   rows = flatten(x.narrow(0, 0, 2)), all = flatten(x);
      std::vector<Values> seen;
      for (const Tensor& part : {turned, columns, rows, all})
        seen.push_back({refusal_of([&] { mul_(part, 3.0); }).empty() ? 1.0 : 0.0});
      fill_(select(x, 0, 0), 7);
      for (const Tensor& part : {turned, columns, rows, all, x}) seen.push_back(whole(part));
      return seen;
    });
}

TEST(LogicalStrides, FollowEveryView) {
  const auto strides_of = [](const Tensor& x) {
    return x.is_distributed() ? logical_strides(x) : x.strides();
  };
  same_everywhere({4, 6}, [&](const Tensor& x) -> std::vector<Values> {
    std::vector<Values> seen;
    for (const Tensor& y :
         {t(x), x.narrow(1, 1, 3), slice(x, 1, 0, 6, 2), diagonal(x), select(x, 1, 2),
          unsqueeze(t(x), 1), view(x, {4, 2, 3}), permute(view(x, {4, 2, 3}), {1, 0, 2}),
          expand(unsqueeze(x, 0), {2, 4, 6}), t(x).detach(), t(t(x))}) {
      const Strides strides = strides_of(y);
      seen.push_back({});
      for (int d = 0; d < y.ndim(); ++d)
        if (y.size(d) > 1)
          seen.back().push_back(static_cast<double>(strides[static_cast<std::size_t>(d)]));
    }
    return seen;
  });
}

// What depends on strides that from_local cannot tell is a copy, and an error where that matters.
TEST(LogicalStrides, OfFromLocalAreUnknownOnRanksWithOneRow) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const std::int64_t rows = world.rank() == 2 ? 1 : 2;
    const Tensor local = counting(world, {rows, 4}).narrow(1, 0, 2);
    FromLocalOptions options;
    options.shape = Shape{5, 2};
    const DTensor x = from_local(local, mesh, Shard(0), options);
    EXPECT_NE(refusal_of([&] { logical_strides(x); }).find("`stride`"), std::string::npos);
    const Tensor flat = flatten(x), copy = contiguous(x), one = unsqueeze(x, 0);
    for (const Tensor& y : {flat, copy}) {
      EXPECT_NE(refusal_of([&] { fill_(y, 0); }).find("`stride`"), std::string::npos);
      EXPECT_EQ(full_tensor(y).to_vector(), full_tensor(x).to_vector());
    }
    const Tensor aside = copy.detach();
    mul_(x, 2.0);
    EXPECT_NE(copy.storage()->buffer, local.storage()->buffer);
    EXPECT_EQ(one.storage()->buffer, local.storage()->buffer);
    for (const Tensor& y : {flat, copy, aside})
      EXPECT_NE(refusal_of([&] { return y + 1.0; }).find("`stride`"), std::string::npos);
    EXPECT_EQ(whole(flatten(x)), whole(x));

    options.stride = Strides{4, 1};
    const DTensor known = from_local(local, mesh, Shard(0), options);
    const Tensor apart = contiguous(known);
    mul_(known, 2.0);
    EXPECT_NE(whole(apart), whole(known));
    co_return;
  });
}

// Slices of columns, padded rows and strided shards: uneven parts, whose gaps differ.
TEST(LogicalStrides, OfUnevenPartsDoNotDependOnTheirGaps) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const std::int64_t columns = world.rank() == 2 ? 2 : 3;
    FromLocalOptions options;
    options.shape = Shape{4, 8};
    const Tensor own = counting(world, {4, columns}), line = counting(world, {columns, 4});
    EXPECT_EQ(logical_strides(from_local(own, mesh, Shard(1), options)), (Strides{8, 1}));
    EXPECT_EQ(logical_strides(from_local(t(line), mesh, Shard(1), options)), (Strides{1, 4}));
    const Tensor cut = counting(world, {4, 9}).narrow(1, 3 * world.rank(), columns);
    const DTensor x = from_local(cut, mesh, Shard(1), options);
    EXPECT_NE(refusal_of([&] { logical_strides(x); }), "");
    options.stride = Strides{9, 1};
    EXPECT_EQ(logical_strides(from_local(cut, mesh, Shard(1), options)), (Strides{9, 1}));
    EXPECT_NE(refusal_of([&] { from_local(t(line), mesh, Shard(1), options); }), "");
    options.stride = Strides{8, 1};  // has no gaps
    EXPECT_NE(refusal_of([&] { from_local(cut, mesh, Shard(1), options); }), "");
    co_return;
  });
}

// No result of a redistribution or of distribute_tensor has gaps on some ranks and not on others.
TEST(LogicalStrides, OfWhatWasRedistributedSayThatItIsContiguous) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Placement places[] = {Replicate(), Shard(0), Shard(1), StridedShard(1, 2), Partial()};
    for (const Shape& shape : {Shape{4, 4}, Shape{3, 5}, Shape{1, 6}, Shape{5, 2}}) {
      const Tensor start = counting(world, shape);
      for (const Placement& a : places)
        for (const Placement& b : places) {
          const Tensor x = distribute_tensor(start, mesh, {a, b});
          EXPECT_TRUE(to_local(x).is_contiguous()) << x;
          for (const Placement& c : places)
            for (const Placement& d : places) {
              if ((c.is_partial() && !a.is_partial()) || (d.is_partial() && !b.is_partial()))
                continue;
              const Tensor y = redistribute(x, {c, d}).tensor();
              EXPECT_TRUE(to_local(y).is_contiguous()) << x << " to " << y;
              EXPECT_EQ(contiguous(y).storage()->buffer, y.storage()->buffer) << y;
            }
        }
    }
    co_return;
  });
}

TEST(ExpandedViews, AViewOfOnePassesItsGradientOnce) {
  for (const Shape& shape : {Shape{1, 2}, Shape{1, 3}})
    same_everywhere(shape, [](Tensor leaf) -> std::vector<Values> {
      leaf.set_requires_grad(true);
      const Tensor y = leaf * 2.0, rows = expand(y, {3, leaf.size(1)});
      const Tensor row = select(rows, 0, 0), part = t(rows),
                   more = expand(rows, {2, 3, leaf.size(1)});
      mul_(y, 3.0);
      run_backward(sum(row * row) + sum(part * part) + sum(more * 1.0));
      return {whole(leaf.grad())};
    });
}

TEST(Views, OneMadeOffTheTapeAfterAWriteIsRead) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor y = leaf_of(world, {4}) * 2.0, row = narrow(y, 0, 1, 2);
    fill_(row, 7);
    Tensor made;
    {
      const NoGradGuard off;
      made = narrow(row, 0, 0, 1);
    }
    const Tensor read = made * 1.0;
    EXPECT_EQ(read.to_vector(), Values{7});
    mul_(row, 2.0);
    EXPECT_TRUE(says(refusal_of([&] { (void)(made * 1.0); }), "NoGradGuard"));
    co_return;
  });
}

TEST(CopiedViews, ADetachedOneTakenAfterAWriteIsRead) {
  for (const Shape& shape : {Shape{2, 3}, Shape{4, 3}, Shape{5, 4}})
    same_everywhere(shape, [](Tensor leaf) -> std::vector<Values> {
      leaf.set_requires_grad(true);
      const Tensor y = leaf * 2.0, row = select(y, 0, 1), part = row.narrow(0, 0, 2);
      mul_(row, 3.0);
      const Tensor logged = row.detach(), logged_part = part.detach();
      register_hook(row, [](const Tensor& g) { return g * 2.0; });
      EXPECT_FALSE(logged.requires_grad());
      run_backward(sum(row * row));
      const Tensor read = logged * 1.0, read_part = logged_part * 1.0;
      mul_(row, 2.0);
      const bool refused = !refusal_of([&] { (void)(logged * 1.0); }).empty();
      return {whole(leaf.grad()), whole(read), whole(read_part), {refused ? 1.0 : 0.0}};
    });
}

}  // namespace
}  // namespace coshard::testing::logical_strides_tests
