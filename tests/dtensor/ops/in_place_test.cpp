// In-place operators: values, layouts, the tape, and what they refuse.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/autograd.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;
using testing::refusal_of;
using Values = std::vector<double>;

Values plus(Values values, double number) {
  for (double& v : values) v += number;
  return values;
}

TEST(InPlace, KeepsStorageLayoutAndDtype) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {3, 5});
    for (const Placement p :
         {Replicate(), Shard(0), Shard(1), Partial(), Partial(Reduce::Avg), Partial(Reduce::Max)}) {
      const DTensor start = distribute_tensor(full, mesh, Replicate(), std::nullopt);
      const DTensor x = p.is_partial() ? clone(start).with_spec(make_spec(mesh, p, full.shape()))
                                       : distribute_tensor(full, mesh, p, std::nullopt);
      const Values before = full_tensor(x).to_vector();
      const void* memory = x.data();
      EXPECT_EQ(add_(x, 1.0).id(), x.id());
      EXPECT_EQ(x.data(), memory);
      EXPECT_EQ(x.layout(), Layout(p));
      EXPECT_EQ(full_tensor(x).to_vector(), plus(before, 1)) << x;
      CountingObserver seen(world);
      fill_(x, 8);
      EXPECT_EQ(seen.total(), 0) << x;
      EXPECT_EQ(full_tensor(x).to_vector(), Values(15, 8)) << x;
      EXPECT_EQ(x.layout(), Layout(p));
    }
    const DTensor half = to(distribute_tensor(full, mesh, Shard(0), std::nullopt), DType::BF16);
    add_(half, distribute_tensor(full, mesh, Shard(1), std::nullopt));
    EXPECT_EQ(half.dtype(), DType::BF16);
    EXPECT_EQ(full_tensor(half).to_vector(), mul(full, 2).to_vector());
    co_return;
  });
}

TEST(InPlace, GivesWhatTheFunctionOfTheSameNameGives) {
  on_ranks(1, [](World& world) -> Task<void> {
    const Tensor base = add(counting(world, {2, 3}), -3.5);
    const Tensor row = counting(world, {3});
    const Tensor mask = gt(row, 1);
    const auto expect = [&](Tensor (*in_place)(const Tensor&, const Tensor&, const Tensor&),
                            const Tensor& want) {
      const Tensor x = clone(base);
      EXPECT_EQ(in_place(x, row, mask).to_vector(), want.to_vector());
      EXPECT_EQ(x.to_vector(), want.to_vector());
    };
    using T = const Tensor&;
    expect([](T x, T y, T) { return add_(x, y, -2); }, add(base, row, -2));
    expect([](T x, T y, T) { return sub_(x, y); }, sub(base, row));
    expect([](T x, T y, T) { return mul_(x, y); }, mul(base, row));
    expect([](T x, T y, T) { return div_(x, y); }, div(base, row));
    expect([](T x, T, T) { return sub_(x, 2); }, sub(base, 2));
    expect([](T x, T, T) { return mul_(x, -2); }, mul(base, -2));
    expect([](T x, T, T) { return div_(x, 4); }, div(base, 4));
    expect([](T x, T, T) { return relu_(x); }, relu(base));
    expect([](T x, T, T) { return neg_(x); }, neg(base));
    expect([](T x, T, T) { return exp_(x); }, exp(base));
    expect([](T x, T, T) { return clamp_(x, -1, 1.5); }, clamp(base, -1, 1.5));
    expect([](T x, T, T) { return zero_(x); }, zeros_like(base));
    expect([](T x, T y, T) { return copy_(x, y); }, add(zeros_like(base), row));
    expect([](T x, T, T m) { return masked_fill_(x, m, 9); }, masked_fill(base, mask, 9));
    expect([](T x, T, T) { return mul_(x, x); }, square(base));
    co_return;
  });
}

TEST(InPlace, GradientsGoThroughWhatTheTensorHasBecome) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor leaf = counting(world, {3});
    Tensor factor = counting(world, {3});
    leaf.set_requires_grad(true);
    factor.set_requires_grad(true);
    const Tensor x = mul(leaf, 2);
    mul_(x, factor);
    add_(x, 1.0);
    run_backward(sum(square(x)));  // (2 l f + 1)^2
    EXPECT_EQ(leaf.grad().to_vector(), (Values{12, 72, 228}));
    EXPECT_EQ(factor.grad().to_vector(), (Values{12, 72, 228}));
    leaf.set_grad({});
    const Tensor y = mul(leaf, 2);
    masked_fill_(y, gt(leaf, 2), 5);
    run_backward(sum(y));
    EXPECT_EQ(leaf.grad().to_vector(), (Values{2, 2, 0}));
    leaf.set_grad({});
    const Tensor z = mul(leaf, 2);
    copy_(z, factor);
    factor.set_grad({});
    run_backward(sum(z));
    EXPECT_EQ(leaf.grad().to_vector(), (Values{0, 0, 0}));
    EXPECT_EQ(factor.grad().to_vector(), (Values{1, 1, 1}));
    co_return;
  });
}

TEST(InPlace, APlainTensorJoinsTheTapeOfWhatIsAddedToIt) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    DTensor leaf = distribute_tensor(counting(world, {3}), mesh, Shard(0), std::nullopt);
    leaf.set_requires_grad(true);
    const DTensor x = zeros(mesh, Replicate(), {3}, DType::F64);
    add_(x, leaf, 3);
    EXPECT_EQ(x.layout(), Layout(Replicate()));
    run_backward(sum(x));
    EXPECT_EQ(leaf.grad().layout(), Layout(Shard(0)));
    EXPECT_EQ(full_tensor(leaf.grad()).to_vector(), (Values{3, 3, 3}));
    co_return;
  });
}

TEST(InPlace, ASavedTensorThatChangedIsAnErrorOfBackward) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor leaf = counting(world, {3});
    leaf.set_requires_grad(true);
    const Tensor x = mul(leaf, 2);
    const Tensor y = square(x);  // keeps x
    add_(x, 1.0);
    EXPECT_THROW(run_backward(sum(y)), Error);
    const Tensor h = mul(leaf, 2);
    const Tensor e = exp(h);  // keeps e
    add_(h, 1.0);
    run_backward(sum(e));
    EXPECT_NE(leaf.grad().to_vector(), Values(3, 0));
    co_return;
  });
}

TEST(InPlace, RefusesLeavesBiggerResultsAndDtypesThatDoNotFit) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor leaf = counting(world, {3});
    leaf.set_requires_grad(true);
    EXPECT_THROW(mul_(leaf, 2), Error);
    EXPECT_THROW(zero_(leaf), Error);
    EXPECT_EQ(leaf.to_vector(), (Values{1, 2, 3}));
    {
      const NoGradGuard no_grad;
      mul_(leaf, 2);
    }
    EXPECT_EQ(leaf.to_vector(), (Values{2, 4, 6}));
    const Tensor row = counting(world, {3});
    EXPECT_THROW(add_(row, counting(world, {2, 3})), Error);
    EXPECT_THROW(copy_(row, counting(world, {2, 3})), Error);
    const Tensor ints = counting(world, {3}, DType::I64);
    EXPECT_THROW(add_(ints, 0.5), Error);
    EXPECT_THROW(div_(ints, 2), Error);
    EXPECT_THROW(mul_(ints, row), Error);
    EXPECT_THROW(exp_(ints), Error);
    EXPECT_THROW(add_(gt(row, 1), ints), Error);
    EXPECT_EQ(ints.to_vector(), (Values{1, 2, 3}));
    EXPECT_EQ(copy_(ints, mul(row, 1.5)).to_vector(), (Values{1, 3, 4}));
    EXPECT_EQ(add_(ints, to(ints, DType::I32)).to_vector(), (Values{2, 6, 8}));
    co_return;
  });
}

TEST(InPlace, WithoutTermsForTheResultNamesTheOperatorAndTheTensor) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = prod(distribute_tensor(counting(world, {2}), mesh, Shard(0)));
    const std::string text = refusal_of([&] { exp_(x); });
    EXPECT_NE(text.find("exp_: f64[] P(product) on tp=2"), std::string::npos) << text;
    co_return;
  });
}

// Whether `write` needs new memory on this rank's device.
bool allocates(World& world, const std::function<void()>& write) {
  const Device& device = *world.device();
  const MemoryStats now = device.memory();
  const auto rest = static_cast<std::int64_t>(now.peak - now.in_use);
  const Tensor ballast = Tensor::empty(world.device(), {rest + 1}, DType::Bool);
  const std::size_t before = device.memory().peak;
  write();
  return device.memory().peak > before;
}

TEST(InPlace, WritesStraightIntoItsMemory) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I64}) {
      const Tensor x = counting(world, {70, 61}, dtype), y = counting(world, {70, 61}, dtype);
      const Tensor half = to(y, DType::BF16), row = counting(world, {61}, dtype);
      const Tensor mask = gt(x, 9), number = counting(world, {}, dtype);
      EXPECT_FALSE(allocates(world, [&] { copy_(x, y); }));
      EXPECT_FALSE(allocates(world, [&] { copy_(x, half); }));
      EXPECT_FALSE(allocates(world, [&] { copy_(x, row); }));
      EXPECT_FALSE(allocates(world, [&] { copy_(x, x); }));
      EXPECT_FALSE(allocates(world, [&] { add_(x, y, 2); }));
      EXPECT_FALSE(allocates(world, [&] { mul_(x, row); }));
      EXPECT_FALSE(allocates(world, [&] { sub_(x, number); }));
      EXPECT_FALSE(allocates(world, [&] { add_(x, x); }));
      EXPECT_FALSE(allocates(world, [&] { add_(slice(x, 0, 0, 35), slice(x, 0, 35, 70)); }));
      EXPECT_FALSE(allocates(world, [&] { mul_(x, 2); }));
      EXPECT_FALSE(allocates(world, [&] { neg_(x); }));
      EXPECT_FALSE(allocates(world, [&] { clamp_(x, -9, 9); }));
      EXPECT_FALSE(allocates(world, [&] { fill_(x, 3); }));
      EXPECT_FALSE(allocates(world, [&] { masked_fill_(x, mask, 3); }));
      if (is_floating(dtype)) {
        EXPECT_FALSE(allocates(world, [&] { div_(x, y); }));
      }
      EXPECT_TRUE(allocates(world, [&] { add_(transpose(x, 0, 1), 1); }));
    }
    co_return;
  });
}

TEST(InPlace, WritesStraightIntoALocalPart) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {70, 61});
    for (const Placement p : {Replicate(), Shard(0), Shard(1)}) {
      const DTensor x = distribute_tensor(full, mesh, p, std::nullopt), y = clone(x);
      EXPECT_FALSE(allocates(world, [&] { add_(x, y); })) << p;
      EXPECT_FALSE(allocates(world, [&] { mul_(x, 2); })) << p;
      EXPECT_EQ(full_tensor(x).to_vector(), mul(full, 4).to_vector()) << p;
      EXPECT_FALSE(allocates(world, [&] { copy_(x, y); })) << p;
      EXPECT_EQ(full_tensor(x).to_vector(), full.to_vector()) << p;
      EXPECT_FALSE(allocates(world, [&] { zero_(x); })) << p;
      EXPECT_EQ(full_tensor(x).to_vector(), Values(70 * 61, 0)) << p;
    }
    const DTensor x = from_local(clone(full), mesh, Partial()),
                  y = from_local(clone(full), mesh, Partial());
    EXPECT_FALSE(allocates(world, [&] { add_(x, y); }));
    EXPECT_FALSE(allocates(world, [&] { mul_(x, 2); }));
    EXPECT_EQ(full_tensor(x).to_vector(), mul(full, 8).to_vector());
    fill_(x, 3);
    EXPECT_EQ(full_tensor(x).to_vector(), Values(70 * 61, 3));
    co_return;
  });
}

// A view of x, which is written, or of a copy of it.
struct Aliased {
  const char* name;
  Tensor (*of)(const Tensor& x);
};
const Aliased kAliased[] = {
    {"itself", [](const Tensor& x) { return x; }},
    {"the same view", [](const Tensor& x) { return view(view(x, {-1}), x.shape()); }},
    {"transposed", [](const Tensor& x) { return transpose(x, 0, 1); }},
    {"a row", [](const Tensor& x) { return select(x, 0, 1); }},
    {"the first row", [](const Tensor& x) { return slice(x, 0, 0, 1); }},
    {"a column", [](const Tensor& x) { return slice(x, 1, 2, 3); }},
    {"an element", [](const Tensor& x) { return select(select(x, 0, 0), 0, 1); }},
    {"a row, stretched", [](const Tensor& x) { return expand(select(x, 0, 2), x.shape()); }},
};

void expect_as_of_a_copy(const Tensor& start, const Aliased& aliased) {
  const auto expect = [&](void (*write)(const Tensor&, const Tensor&)) {
    const Tensor x = clone(start), want = clone(start);
    write(x, aliased.of(x));
    write(want, aliased.of(clone(start)));
    EXPECT_EQ(full_tensor(x).to_vector(), full_tensor(want).to_vector())
        << aliased.name << " of " << start;
  };
  expect([](const Tensor& x, const Tensor& y) { copy_(x, y); });
  expect([](const Tensor& x, const Tensor& y) { add_(x, y, -3); });
  expect([](const Tensor& x, const Tensor& y) { mul_(x, y); });
  expect([](const Tensor& x, const Tensor& y) { masked_fill_(x, gt(y, 30), -1); });
}

TEST(InPlace, ReadsItsOwnMemoryAsItWas) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const DType dtype : {DType::F32, DType::BF16, DType::F64, DType::I64}) {
      const Tensor full = counting(world, {67, 67}, dtype);
      for (const Aliased& aliased : kAliased)
        for (const Placement p : {Replicate(), Shard(0), Shard(1)})
          expect_as_of_a_copy(distribute_tensor(full, mesh, p, std::nullopt), aliased);
    }
    co_return;
  });
}

TEST(InPlace, ReadsOverlappingMemoryAsItWas) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : {DType::F32, DType::BF16, DType::F64, DType::Bool}) {
      const Tensor start = to(remainder(counting(world, {9000}), 7), dtype);
      const auto part = [](const Tensor& all, std::int64_t at, bool borrowed) {
        const Tensor part = slice(all, 0, at, at + 4400);
        if (!borrowed) return part;
        return Tensor::borrow(all.device(), part.data(), part.shape(), part.dtype());
      };
      for (const auto& [to, from] : {std::pair(0, 1), {1, 0}, {0, 97}, {33, 0}, {0, 4400}})
        for (const bool borrowed : {false, true}) {
          const Tensor all = clone(start);
          copy_(part(all, to, borrowed), part(all, from, borrowed));
          EXPECT_EQ(part(all, to, false).to_vector(), part(start, from, false).to_vector());
          if (dtype == DType::Bool) continue;
          const Tensor sum = add(part(start, to, false), part(start, from, false));
          const Tensor again = clone(start);
          add_(part(again, to, borrowed), part(again, from, borrowed));
          EXPECT_EQ(part(again, to, false).to_vector(), sum.to_vector());
        }
    }
    co_return;
  });
}

TEST(InPlace, WaitsForWhatReadsItsMemoryAndForItsOperand) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {67, 67});
    for (const Placement p : {Shard(0), Shard(1)}) {
      const DTensor x = distribute_tensor(full, mesh, p, std::nullopt);
      const Redistribution moving = redistribute(x, Replicate());
      mul_(x, 3);
      add_(x, moving.tensor());
      EXPECT_EQ(full_tensor(x).to_vector(), mul(full, 4).to_vector());
      EXPECT_EQ(moving.tensor().to_vector(), full.to_vector());
      copy_(x, redistribute(x, Replicate()).tensor());
      EXPECT_EQ(full_tensor(x).to_vector(), mul(full, 4).to_vector());
    }
    co_return;
  });
}

TEST(InPlace, OfNothingAndOutsideTheMeshWritesNothing) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh all = init_device_mesh(world, {3}, {"tp"});
    const DeviceMesh two = DeviceMesh::from_ranks(world, {0, 1}, {2});
    for (const DeviceMesh& mesh : {all, two}) {
      const Tensor full = counting(world, {2, 3});
      const DTensor x = distribute_tensor(full, mesh, Shard(0), std::nullopt);
      const DTensor y = distribute_tensor(full, mesh, Shard(1), std::nullopt);
      const std::uint32_t writes = x.storage()->changes();
      copy_(x, y);
      add_(x, y, 2);
      mul_(x, x);
      EXPECT_EQ(x.storage()->changes(), writes + 3);
      const Tensor got = full_tensor(x);
      if (mesh.contains_this_rank()) {
        EXPECT_EQ(got.to_vector(), square(mul(full, 3)).to_vector());
      }
    }
    co_return;
  });
}

TEST(InPlace, WhatIsSavedForBackwardCountsWritesOffTheTape) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor leaf = counting(world, {3});
    leaf.set_requires_grad(true);
    for (void (*write)(const Tensor&, const Tensor&) :
         {+[](const Tensor&x, const Tensor&y) { copy_(x, y); },
          +[](const Tensor&x, const Tensor&y) { add_(x, y); },
          +[](const Tensor&x, const Tensor&) { zero_(x); }}) {
      const Tensor factor = counting(world, {3}), other = counting(world, {3});
      const Tensor y = mul(leaf, factor);  // keeps factor
      EXPECT_FALSE(allocates(world, [&] { write(factor, other); }));
      EXPECT_NE(refusal_of([&] { run_backward(sum(y)); }).find("changed in place"),
                std::string::npos);
    }
    const Tensor factor = counting(world, {3});
    const Tensor y = mul(leaf, factor), x = mul(leaf, 2);
    mul_(x, y);  // on the tape: what it saves is its own
    run_backward(sum(x));
    EXPECT_EQ(leaf.grad().to_vector(), (Values{4, 16, 36}));
    co_return;
  });
}

}  // namespace
}  // namespace coshard
