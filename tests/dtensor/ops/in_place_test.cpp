// In-place operators: values, layouts, the tape, and what they refuse.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape.h>
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

}  // namespace
}  // namespace coshard
