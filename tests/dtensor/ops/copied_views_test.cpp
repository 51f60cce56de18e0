// Writes through views along sharded dimensions: the same values and gradients as in plain tensors.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/hooks.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard::testing {
namespace {

Values whole(const Tensor& x) {
  const Tensor plain = x.detach();
  return (plain.is_distributed() ? full_tensor(plain) : plain).to_vector();
}

// Runs a program on a plain tensor and on DTensors of several layouts, meshes and sizes: what it
// returns, what became of its argument and, if it was on the tape, the gradient agree.
void same_everywhere(const Shape& shape, const std::function<Tensor(const Tensor&)>& program) {
  const auto compare = [&](World& world, const DeviceMesh& mesh, const Layout& layout) {
    for (const bool tape : {false, true}) {
      const auto run = [&](const Tensor& start) {
        Tensor leaf = start;
        leaf.set_requires_grad(tape);
        const Tensor x = leaf * 1.0;
        const Tensor y = program(x);
        if (tape) run_backward(sum(y * y) + sum(x * x * x));
        return std::array{whole(y), whole(x), tape ? whole(leaf.grad()) : Values()};
      };
      const Tensor start = counting(world, shape, DType::F64, 0.5);
      const auto want = run(start.detach());
      const auto got = run(distribute_tensor(start, mesh, layout));
      EXPECT_EQ(got, want) << layout << " of " << shape << " on " << mesh << (tape ? " taped" : "");
    }
  };
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, [&](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {ranks}, {"tp"});
      for (const Layout& layout : {Layout(Shard(0)), Layout(Shard(1)), Layout(Replicate())})
        compare(world, mesh, layout);
      co_return;
    });
  on_ranks(4, [&](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    for (const Layout& layout : {Layout(Shard(0), Shard(0)), Layout(Shard(0), Shard(1)),
                                 Layout(Replicate(), Shard(0)), Layout(Shard(1), Replicate())})
      compare(world, mesh, layout);
    co_return;
  });
}

TEST(CopiedViews, ASelectedRowIsWritten) {
  same_everywhere({5, 3}, [](const Tensor& x) {
    fill_(x.select(0, 1), 7);
    mul_(x[4], 3.0);
    copy_(x[0], x[3] * 2.0);
    return select(x, 1, 0);
  });
}

TEST(CopiedViews, ANarrowedPartIsWrittenAndGoesOn) {
  same_everywhere({5, 4}, [](const Tensor& x) {
    const Tensor part = x.narrow(0, 1, 3);
    add_(part, 1.5);
    mul_(part, part);
    sub_(narrow(part, 1, 0, 2), 2.0);  // a view of it
    return part;
  });
}

TEST(CopiedViews, ASliceWithAStepADiagonalAndAMergedViewAreWritten) {
  same_everywhere({4, 4}, [](const Tensor& x) {
    mul_(slice(x, 0, 0, 4, 2), 2.0);
    fill_(diagonal(x), 1.0);
    add_(slice(view(x, {16}), 0, 5, 9), 10.0);
    return diagonal(x, 1) * 1.0;
  });
}

TEST(CopiedViews, PiecesShareWhatTheyWrite) {
  same_everywhere({6, 3}, [](const Tensor& x) {
    double factor = 1;
    for (const Tensor& piece : x.split(2)) mul_(piece, factor += 1);
    for (const Tensor& row : x.unbind(1)) add_(row, factor);
    return x * 1.0;
  });
}

TEST(CopiedViews, TwoViewsOfTheSameRowsSeeEachOther) {
  same_everywhere({4, 3}, [](const Tensor& x) {
    const Tensor row = x[1], rows = x.narrow(0, 0, 3);
    fill_(row, 2.0);
    mul_(rows, 3.0);
    add_(row, 1.0);  // 7
    mul_(x, 2.0);    // 14
    add_(row, rows[1]);
    return rows + row;
  });
}

TEST(CopiedViews, ARandomFillAndIntegersAreWritten) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor ids = distribute_tensor(counting(world, {5}, DType::I64), mesh, Shard(0));
    fill_(ids.narrow(0, 1, 3), 9);
    masked_fill_(ids.narrow(0, 0, 2), eq(ids.narrow(0, 0, 2), 9), 4);
    EXPECT_EQ(whole(ids), (Values{1, 4, 9, 9, 5}));
    const DTensor x = zeros(mesh, Shard(0), {4, 2}, DType::F64);
    uniform_(x.narrow(0, 1, 2), 1, 2);
    const Values drawn = whole(x);
    for (std::size_t i = 0; i < drawn.size(); ++i)
      EXPECT_EQ(drawn[i] >= 1, i >= 2 && i < 6) << drawn[i];
    co_return;
  });
}

TEST(CopiedViews, AViewOfAViewThatOnlyTheLayoutForbidsIsWritten) {
  same_everywhere({5, 4}, [](const Tensor& x) {
    const Tensor rows = x.narrow(0, 1, 3);
    add_(flatten(rows), 1.5);
    mul_(view(rows, {2, 6}), 2.0);
    return view(x, {20});
  });
}

TEST(CopiedViews, RandomNumbersFillWhatIsNotContiguous) {
  same_everywhere({5, 4}, [](const Tensor& x) {
    manual_seed(3);
    normal_(x.narrow(1, 1, 2), 1, 2);
    uniform_(t(x).narrow(0, 3, 1), 5, 6);
    return x * 1.0;
  });
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor plain = counting(world, {3, 4});
    const DTensor terms = distribute_tensor(plain, mesh, Partial());
    for (const Tensor& x : {plain, terms}) {
      manual_seed(3);
      uniform_(x.narrow(1, 1, 2), 0, 1);
    }
    EXPECT_EQ(whole(terms), whole(plain));
    co_return;
  });
}

TEST(CopiedViews, TermsOfASumAreWritten) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    for (const Reduce reduce : {Reduce::Sum, Reduce::Avg, Reduce::Max, Reduce::Min}) {
      const DTensor x =
          distribute_tensor(counting(world, {3, 2}), mesh, Layout(Partial(reduce), Shard(0)));
      const Layout before = x.layout();
      fill_(x[0], 7);
      mul_(x[2], 2.0);
      EXPECT_EQ(x.layout(), before);
      EXPECT_EQ(whole(x), (Values{7, 7, 3, 4, 10, 12})) << before;
    }
    co_return;
  });
}

TEST(CopiedViews, AnInfinityStaysWhereItIs) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const double inf = std::numeric_limits<double>::infinity();
    const DTensor x = full(mesh, Shard(0), {4}, -inf, DType::F64);
    fill_(x.narrow(0, 1, 2), 0);
    EXPECT_EQ(whole(x), (Values{-inf, 0, 0, -inf}));
    co_return;
  });
}

TEST(CopiedViews, AFollowedBufferHasTheGradientOfWhatWasWritten) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor w = distribute_tensor(counting(world, {3}), mesh, Replicate());
    w.set_requires_grad(true);
    const DTensor cache = zeros(mesh, Shard(0), {4, 3}, DType::F64);
    copy_(cache[1], w * 2.0);
    copy_(cache[3], w * 3.0);
    EXPECT_TRUE(cache.requires_grad());
    run_backward(sum(cache * cache));  // 13 w^2
    EXPECT_EQ(whole(w.grad()), (Values{26, 52, 78}));
    co_return;
  });
}

TEST(CopiedViews, ALeafIsChangedUnderANoGradGuardOnly) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor w = distribute_tensor(counting(world, {4}), mesh, Shard(0));
    w.set_requires_grad(true);
    const std::string text = refusal_of([&] { fill_(w.narrow(0, 0, 2), 1); });
    EXPECT_TRUE(says(text, "fill_: ") && says(text, "view of a leaf") && says(text, "NoGradGuard"))
        << text;
    EXPECT_EQ(whole(w), (Values{1, 2, 3, 4}));
    const NoGradGuard off;
    fill_(w.narrow(0, 0, 2), 1);
    EXPECT_EQ(whole(w), (Values{1, 1, 3, 4}));
    co_return;
  });
}

// The gradient of a view passes through what it was written into, and its hooks.
TEST(CopiedViews, AWrittenOneHasItsGradientThroughItsBase) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const Placement layout : {Placement(Replicate()), Shard(0)}) {
      Tensor leaf = distribute_tensor(counting(world, {4, 2}), mesh, layout);
      leaf.set_requires_grad(true);
      const Tensor base = leaf * 2.0, row = select(base, 0, 3);
      mul_(row, 3.0);
      register_hook(base, [](const Tensor& g) { return g * 10.0; });
      run_backward(sum(row));
      EXPECT_EQ(whole(leaf.grad()), (Values{0, 0, 0, 0, 0, 0, 60, 60})) << layout;
    }
    co_return;
  });
}

TEST(CopiedViews, ALeafIsMadeOfAClone) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));
    Tensor row = select(x, 0, 3);
    EXPECT_NE(refusal_of([&] { row.set_requires_grad(true); }).find("clone()"), std::string::npos);
    Tensor own = clone(row);
    own.set_requires_grad(true);
    EXPECT_TRUE(own.requires_grad());
    co_return;
  });
}

TEST(CopiedViews, OneThatIsBehindIsNotReadWithoutACollective) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = zeros(mesh, Shard(0), {4, 2}, DType::F64);
    const DTensor row = x[0];
    fill_(x, 5);
    EXPECT_TRUE(says(refusal_of([&] { row.to_vector(); }), "take the view again"));
    EXPECT_TRUE(says(::testing::PrintToString(row), "take it again"))
        << row;  // not the values of before
    EXPECT_EQ(whole(row + 0.0), (Values{5, 5}));
    EXPECT_EQ(refusal_of([&] { row.to_vector(); }), "");  // made again by the operator
    fill_(x, 6);
    EXPECT_EQ(full_tensor(row).to_vector(), (Values{6, 6}));
    co_return;
  });
}

TEST(CopiedViews, ADetachedHandleIsAViewOfTheSame) {
  same_everywhere({5, 4}, [](const Tensor& x) {
    const Tensor row = x[1];
    fill_(row.detach(), 7);
    add_(x[0].detach(), 1.0);
    sub_(narrow(row, 0, 1, 2).detach(), 3.0);
    copy_(x.narrow(0, 2, 3)[1].detach(), row.detach());  // of a copy's copy
    return row * 1.0;
  });
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = zeros(mesh, Shard(0), {4, 2}, DType::F64);
    const DTensor alone = x[0].detach(), row = x[1], beside = row.detach();
    fill_(x, 5);
    EXPECT_EQ(whole(alone + 0.0), (Values{5, 5}));
    fill_(row, 6);
    EXPECT_EQ(beside.to_vector(), (Values{6}));  // nothing has to be made again
    fill_(beside, 7);
    EXPECT_EQ(row.to_vector(), (Values{7}));
    EXPECT_EQ(whole(x), (Values{5, 5, 7, 7, 5, 5, 5, 5}));
    Tensor leaf = row.detach();
    EXPECT_TRUE(says(refusal_of([&] { leaf.set_requires_grad(true); }), "clone()"));
    co_return;
  });
}

// It neither writes again what is saved for backward nor takes a gradient away.
TEST(CopiedViews, ADetachedHandleThatIsReadSpoilsNoBackward) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const bool behind : {false, true}) {
      DTensor leaf = distribute_tensor(counting(world, {4, 2}), mesh, Shard(0));
      leaf.set_requires_grad(true);
      const DTensor x = leaf * 1.0, row = x[1], seen = row.detach();
      mul_(behind ? x : row, 2.0);
      const DTensor y = behind ? row : row * row;
      EXPECT_EQ(whole(seen.detach()), (Values{6, 8}));
      run_backward(sum(y));
      const Values want = behind ? Values{2, 2} : Values{24, 32};
      EXPECT_EQ(whole(leaf.grad()), (Values{0, 0, want[0], want[1], 0, 0, 0, 0}));
    }
    co_return;
  });
}

TEST(CopiedViews, DataIsReadOnly) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = zeros(mesh, Shard(0), {4, 2}, DType::F64);
    const DTensor row = x[0];
    const bool host_reads = world.device()->kind() == DeviceKind::Cpu;
    for (const Tensor& handle : {row, row.detach(), to_local(row), row.narrow(0, 0, 1)}) {
      const std::string text = refusal_of([&] { handle.data(); });
      EXPECT_TRUE(says(text, "data: ") && says(text, "const_data()") && says(text, "clone()"))
          << text;
      EXPECT_NE(handle.const_data(), nullptr);
      EXPECT_EQ(host_reads ? *handle.data_as<const double>() : 0, 0);
    }
    fill_(x, 5);
    EXPECT_EQ(clone(row).to_vector()[0], 5);
    co_return;
  });
}

// Only the rank that wrote knows that the view is behind.
TEST(CopiedViews, AWriteToOneShardAloneIsNamed) {
  std::string text;
  try {
    on_ranks(2, [](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
      const DTensor x = zeros(mesh, Shard(0), {4, 2}, DType::F64);
      const DTensor row = x[0];
      if (world.rank() == 1) fill_(to_local(x), 7);
      const DTensor y = row + 0.0;
      full_tensor(x);
      co_return;
    });
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::CommFailed);
    text = error.what();
  }
  EXPECT_TRUE(says(text, "rank 1 last made a view again") && says(text, "to_local()")) << text;
}

TEST(CopiedViews, HandlesThatAreNoViewsAreRefused) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = zeros(mesh, Shard(0), {4, 2}, DType::F64);
    const DTensor row = x[0];
    const std::string own = refusal_of([&] { fill_(to_local(row), 7); });
    EXPECT_TRUE(says(own, "fill_: ") && says(own, "what it is a view of")) << own;
    fill_(row, 7);
    EXPECT_EQ(whole(x), (Values{7, 7, 0, 0, 0, 0, 0, 0}));
    const DTensor turned = t(x);
    const std::string text = refusal_of([&] { fill_(view(turned, {8}), 7); });  // strides forbid it
    EXPECT_TRUE(says(text, "what it is a view of")) << text;
    co_return;
  });
}

TEST(CopiedViews, LeaveNothingBehind) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const auto program = [&] {
      DTensor x = distribute_tensor(counting(world, {64, 64}), mesh, Shard(0));
      x.set_requires_grad(true);
      const DTensor h = exp(x * 0.001);
      const DTensor row = h[1];
      copy_(row, row * row);
      mul_(h[2], row);
      return sum(h * row).requires_grad();
    };
    EXPECT_TRUE(program());
    const std::size_t before = world.device()->memory().in_use;
    for (int i = 0; i < 10; ++i) program();
    EXPECT_EQ(world.device()->memory().in_use, before);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
