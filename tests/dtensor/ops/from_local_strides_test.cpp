// Strides of what from_local makes: told from one row a rank, given, unlike on ranks, or unknown.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/local_map.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing::from_local_strides {
namespace {

FromLocalOptions whole_of(const Shape& shape) {
  FromLocalOptions options;
  options.shape = shape;
  return options;
}
FromLocalOptions whole_of(const Shape& shape, const Strides& stride) {
  FromLocalOptions options = whole_of(shape);
  options.stride = stride;
  return options;
}

TEST(FromLocalStrides, OfOneRowARankAreThoseOfMore) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor line = t(counting(world, {4, 1}));  // strides (1,1)
    const DTensor x = from_local(line, mesh, Shard(0));
    EXPECT_EQ(logical_strides(x), (Strides{1, 2}));
    EXPECT_EQ(logical_strides(from_local(line, mesh, Shard(0), whole_of({2, 4}, {1, 2}))),
              (Strides{1, 2}));
    const Tensor f = flatten(t(x));
    mul_(x, 10.0);
    EXPECT_EQ(full_tensor(f).to_vector(), full_tensor(t(x)).to_vector());
    EXPECT_EQ(contiguous(t(x)).storage()->buffer, line.storage()->buffer);
    const Tensor cube = permute(counting(world, {1, 2, 5}), {2, 0, 1});  // [5,1,2], (1,10,5)
    EXPECT_EQ(logical_strides(from_local(cube, mesh, Shard(1))), (Strides{1, 10, 5}));
    for (const Strides& odd : {Strides{1, 1}, Strides{0, 1}, Strides{-5, 1}})
      EXPECT_NE(refusal_of([&] {
                  from_local(line, mesh, Shard(0), whole_of({2, 4}, odd));
                }),
                "")
          << odd;
    EXPECT_EQ(logical_strides(expand(from_local(counting(world, {4}), mesh, Replicate()), {1, 4})),
              (Strides{4, 1}));
    co_return;
  });
}

// Of even parts, of uneven ones, of replicas, and where ranks are told unlike strides.
TEST(FromLocalStrides, ThatDifferByRankAreAnErrorAtTheNextCollective) {
  for (const int kind : {0, 1, 2, 3})
    on_ranks(2, [kind](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
      const bool first = world.rank() == 0, uneven = kind >= 2;
      const std::int64_t rows = uneven && first ? 3 : 2;
      FromLocalOptions options = whole_of({uneven ? 5 : kind == 0 ? 4 : 2, 4});
      const Tensor own = counting(world, {rows, 4});
      const Tensor local = first || kind == 3 ? own : t(counting(world, {4, rows}));
      if (kind == 3) options.stride = first ? Strides{4, 1} : Strides{8, 1};
      const Tensor part = kind == 3 && !first ? counting(world, {rows, 8}).narrow(1, 0, 4) : local;
      const DTensor x =
          from_local(part, mesh, kind == 1 ? Layout(Replicate()) : Layout(Shard(0)), options);
      std::string text;
      try {
        full_tensor(distribute_tensor(counting(world, {4, 4}), mesh, Shard(0)));
      } catch (const Error& error) {
        text = error.message();
      }
      EXPECT_NE(text.find("`stride`"), std::string::npos) << kind << text;
      co_return;
    });
}

// Strides of a dimension of size 1 say nothing.
TEST(FromLocalStrides, ThatDifferWhereThereIsOneElementAreAlike) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor local =
        world.rank() == 0 ? counting(world, {1, 8}).narrow(1, 0, 4) : counting(world, {1, 4});
    const DTensor x = from_local(local, mesh, Shard(1));
    EXPECT_EQ(full_tensor(x).numel(), 8);
    EXPECT_EQ(contiguous(x).storage()->buffer, local.storage()->buffer);
    co_return;
  });
}

TEST(LocalMap, OfUnevenPartsSharesMemoryOnAllRanksOrIsRefused) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const DTensor x = distribute_tensor(counting(world, {5, 2}), mesh, Shard(0));
    LocalMapOptions options;
    options.out_placements = {Layout(Shard(1))};
    const Tensor inputs[] = {x};
    const auto turned = [](std::span<const Tensor> l) { return std::vector<Tensor>{t(l[0])}; };
    const Tensor y = local_map(turned, inputs, options)[0];
    mul_(x, 10.0);
    EXPECT_EQ(full_tensor(y).to_vector(), full_tensor(t(x)).to_vector());
    co_return;
  });
}

TEST(FromLocalStrides, OfGradientsAndResultsThatAreNewAreKnown) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    Tensor leaf = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));  // 2, 2 and no rows
    leaf.set_requires_grad(true);
    const Tensor local = to_local(leaf);
    if (local.numel() > 0)
      run_backward(sum(t(local) * counting(world, {2, 2})));
    else
      run_backward(sum(local));
    const Tensor gradient = leaf.grad();
    EXPECT_TRUE(to_local(gradient).is_contiguous());
    EXPECT_EQ(contiguous(gradient).storage()->buffer, gradient.storage()->buffer);

    const DTensor uneven = distribute_tensor(counting(world, {5, 2}), mesh, Shard(0));
    LocalMapOptions options;
    options.out_placements = {Layout(Shard(0))};
    const Tensor inputs[] = {uneven};
    const auto doubled = [](std::span<const Tensor> l) { return std::vector<Tensor>{l[0] * 2.0}; };
    const Tensor y = local_map(doubled, inputs, options)[0];
    mul_(flatten(y), 3.0);
    EXPECT_EQ(full_tensor(y).to_vector(), full_tensor(uneven * 6.0).to_vector());
    const std::int64_t rows = uneven.local_shape()[0];
    const DTensor unknown =
        from_local(counting(world, {rows, 2}), mesh, Shard(0), whole_of({5, 2}));
    const Tensor twice = repeat(unknown, {1, 2});
    mul_(contiguous(twice), 0.0);
    EXPECT_EQ(full_tensor(twice).to_vector(), std::vector<double>(20, 0));
    co_return;
  });
}

// contiguous() of unknown strides may be the tensor itself: with its hooks and its gradient.
TEST(FromLocalStrides, ThatAreUnknownAllowNoHooksAndNoUntapedCopies) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const std::int64_t rows = world.rank() == 2 ? 1 : 2;
    Tensor local = counting(world, {rows, 2});
    local.set_requires_grad(true);
    const DTensor x = from_local(local, mesh, Shard(0), whole_of({5, 2}));
    Tensor c = contiguous(x);
    const auto names_the_remedy = [](const std::string& text) {
      EXPECT_NE(text.find("`stride`"), std::string::npos) << text;
    };
    names_the_remedy(refusal_of([&] { register_hook(c, [](const Tensor& g) { return g; }); }));
    names_the_remedy(refusal_of([&] { retain_grad(c); }));
    names_the_remedy(refusal_of([&] { return c.grad(); }));
    register_hook(narrow(c, 1, 0, 1), [](const Tensor& g) { return g; });
    EXPECT_NE(refusal_of([&] { c.set_requires_grad(true); }), "");
    EXPECT_NE(refusal_of([&] { c.data(); }), "");
    Tensor off;
    {
      const NoGradGuard guard;
      off = contiguous(x);
      EXPECT_EQ(full_tensor(off * 1.0).to_vector(), full_tensor(x).to_vector());
    }
    names_the_remedy(refusal_of([&] { return off * 2.0; }));
    co_return;
  });
}

// As a view on one device: a write before it was made, or off the tape, is none since.
TEST(CopiedViews, OneMadeOffTheTapeKnowsWhatWasWrittenBefore) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    Tensor x = distribute_tensor(counting(world, {2, 2}), mesh, Shard(0)), v, w;
    Tensor scale = distribute_tensor(counting(world, {2, 2}), mesh, Shard(0));
    scale.set_requires_grad(true);
    const Tensor y = x * 1.0, part = narrow(y, 1, 0, 2);
    mul_(y, scale);
    {
      const NoGradGuard off;
      v = select(part, 0, 0);
      w = select(x, 0, 0);
    }
    EXPECT_EQ(full_tensor(v * 1.0).to_vector(), (std::vector<double>{1, 4}));
    x.set_requires_grad(true);
    EXPECT_EQ(full_tensor(w * 1.0).to_vector(), (std::vector<double>{1, 2}));
    co_return;
  });
}

TEST(CopiedViews, OneMadeOffTheTapeIsRefusedOnItAfterATapedWrite) {
  for (const bool reads : {false, true})
    on_ranks(2, [reads](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
      const DTensor x = distribute_tensor(counting(world, {2, 2}), mesh, Shard(0)).clone();
      Tensor scale = distribute_tensor(counting(world, {2, 2}), mesh, Shard(0)), v;
      {
        const NoGradGuard off;
        v = select(x, 0, 0);
        mul_(x, 2.0);  // off the tape, which v follows
      }
      EXPECT_EQ(full_tensor(v * 1.0).to_vector(), (std::vector<double>{2, 4}));
      scale.set_requires_grad(true);
      mul_(x, scale);
      if (reads) {
        const NoGradGuard off;
        EXPECT_EQ(full_tensor(v * 1.0).to_vector(), (std::vector<double>{2, 8}));
      }
      EXPECT_NE(refusal_of([&] { return sum(v); }).find("NoGradGuard"), std::string::npos);
      co_return;
    });
}

}  // namespace
}  // namespace coshard::testing::from_local_strides
