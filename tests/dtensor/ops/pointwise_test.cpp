// Which Partials pass through pointwise operators, and what special values and dtypes become.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/dtensor/ops/expect.h"
#include "tests/dtensor/ops/pointwise_inputs.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::CountingObserver;
using testing::of;
using testing::on_ranks;
using testing::placed;
using testing::Values;
using testing::without_moving;

constexpr double kInf = std::numeric_limits<double>::infinity();

const double kNaN = std::nan("");

// Rank r's term: sums 60/40 under noise that cancels out, an extreme held by one rank only.
double term(double value, Reduce reduce, std::size_t i, int r, int n) {
  if (reduce == Reduce::Product) return r == 0 ? -4 * value : r == 1 ? -0.25 : 1;
  if (reduce == Reduce::Max || reduce == Reduce::Min) {
    const double away = reduce == Reduce::Max ? -1.5 : 1.5;
    return static_cast<int>(i) % n == r ? value : value + away;
  }
  const double noise = i % 2 == 0 ? 2 : -2;
  const double share = r == 0 ? 0.6 : r == 1 ? 0.4 : 0;
  const double sum = value * share + (r == 0 ? noise * (n - 1) : -noise);
  return reduce == Reduce::Avg ? n * sum : sum;
}

DTensor partial(World& world, const DeviceMesh& mesh, Values values, Reduce reduce) {
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = term(values[i], reduce, i, mesh.local_rank(0), mesh.size());
  const Tensor local = of(world, values);
  return local.with_spec(make_spec(mesh, Partial(reduce), local.shape()));
}

const Values kX = {-2, -0.5, 0.25, 1.5, 3};

const Values kY = {1, -1.5, 2, 0.75, -3};

const Values kMask = {1, 0, 0, 1, 0};

// f of x, and perhaps of y and a mask, and the layout it must have; R: none that is Partial.
struct Passing {
  const char* what;
  Tensor (*f)(const Tensor& x, const Tensor& y, const Tensor& mask);
  Placement x, y, out;
};

DTensor holding(World& world, const DeviceMesh& mesh, const Values& values, Placement p) {
  if (p.is_partial()) return partial(world, mesh, values, p.reduce);
  return distribute_tensor(of(world, values), mesh, p, std::nullopt);
}

void expect_passing(const Passing& c, int collectives) {
  on_ranks(3, [&c, collectives](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor mask = of(world, kMask, DType::Bool);
    const DTensor x = holding(world, mesh, kX, c.x);
    const DTensor y = holding(world, mesh, kY, c.y);
    const DTensor mask_on = distribute_tensor(mask, mesh, Replicate(), std::nullopt);
    CountingObserver seen(world);
    const DTensor got = c.f(x, y, mask_on);
    EXPECT_EQ(seen.total(), collectives) << c.what;
    if (c.out.is_partial()) {
      EXPECT_EQ(got.layout(), Layout(c.out)) << c.what;
    } else {  // replicated, or cut where that is cheaper
      EXPECT_FALSE(got.layout().has_partial()) << c.what << " " << got;
    }
    const Values values = full_tensor(got).to_vector();
    const Values want = c.f(of(world, kX), of(world, kY), mask).to_vector();
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(values[i], want[i], 1e-12) << c.what << " element " << i;
    co_return;
  });
}

#define F(expression)                                                                          \
  [](const Tensor& x, [[maybe_unused]] const Tensor& y, [[maybe_unused]] const Tensor& mask) { \
    return expression;                                                                         \
  }

const Placement R = Replicate();

const Placement kSum = Partial(Reduce::Sum), kAvg = Partial(Reduce::Avg),
                kMax = Partial(Reduce::Max), kMin = Partial(Reduce::Min),
                kProduct = Partial(Reduce::Product);

TEST(PartialAlgebra, LinearFunctionsKeepSumsAndAverages) {
  for (const Placement p : {kSum, kAvg}) {
    for (const Passing& c : {Passing{"p + q", F(add(x, y)), p, p, p},
                             {"p - 2q", F(add(x, y, -2)), p, p, p},
                             {"p + r", F(add(x, y)), p, R, p},
                             {"r - p", F(sub(x, y)), R, p, p},
                             {"p * r", F(mul(x, y)), p, R, p},
                             {"r * p", F(mul(x, y)), R, p, p},
                             {"p / r", F(div(x, y)), p, R, p},
                             {"p * -2", F(mul(x, -2)), p, R, p},
                             {"p / -3", F(div(x, -3)), p, R, p},
                             {"-p", F(neg(x)), p, R, p},
                             {"lerp", F(lerp(x, y, 0.3)), p, p, p},
                             {"addcmul", F(addcmul(x, y, x)), p, R, p},
                             {"where", F(where(mask, x, y)), p, p, p},
                             {"masked 0", F(masked_fill(x, mask, 0)), p, R, p},
                             {"clone", F(clone(x)), p, R, p}}) {
      expect_passing(c, 0);
    }
  }
}

TEST(PartialAlgebra, ExtremesPassThroughMonotoneFunctionsAndTurnOverWhereTheyFall) {
  for (const auto& [p, q] : {std::pair(kMax, kMin), std::pair(kMin, kMax)}) {
    for (const Passing& c : {Passing{"p + r", F(add(x, y)), p, R, p},
                             {"r + p", F(add(x, y)), R, p, p},
                             {"r - p", F(sub(x, y)), R, p, q},
                             {"p + 1", F(add(x, 1)), p, R, p},
                             {"1 - p", F(rsub(x, 1)), p, R, q},
                             {"p * 2", F(mul(x, 2)), p, R, p},
                             {"p * -2", F(mul(x, -2)), p, R, q},
                             {"p / -3", F(div(x, -3)), p, R, q},
                             {"-p", F(neg(x)), p, R, q},
                             {"maximum", F(maximum(x, y)), p, R, p},
                             {"minimum", F(minimum(x, y)), R, p, p},
                             {"exp", F(exp(x)), p, R, p},
                             {"expm1", F(expm1(x)), p, R, p},
                             {"floor", F(floor(x)), p, R, p},
                             {"sign", F(sign(x)), p, R, p},
                             {"relu", F(relu(x)), p, R, p},
                             {"leaky_relu", F(leaky_relu(x, 0.2)), p, R, p},
                             {"softplus", F(softplus(x)), p, R, p},
                             {"tanh", F(tanh(x)), p, R, p},
                             {"sigmoid", F(sigmoid(x)), p, R, p},
                             {"erf", F(erf(x)), p, R, p},
                             {"clamp", F(clamp(x, -1, 2)), p, R, p},
                             {"to", F(to(to(x, DType::F32), DType::F64)), p, R, p},
                             {"where", F(where(mask, x, y)), p, p, p},
                             {"where r", F(where(mask, x, y)), R, p, p},
                             {"masked", F(masked_fill(x, mask, -2)), p, R, p},
                             {"clone", F(clone(x)), p, R, p}})
      expect_passing(c, 0);
  }
  expect_passing({"max of maxima", F(maximum(x, y)), kMax, kMax, kMax}, 0);
  expect_passing({"min of minima", F(minimum(x, y)), kMin, kMin, kMin}, 0);
}

TEST(PartialAlgebra, AveragesTakeConstantsAndProductsMultiply) {
  expect_passing({"avg + 1", F(add(x, 1)), kAvg, R, kAvg}, 0);
  expect_passing({"avg masked", F(masked_fill(x, mask, -2)), kAvg, R, kAvg}, 0);
  expect_passing({"prod * prod", F(mul(x, y)), kProduct, kProduct, kProduct}, 0);
  expect_passing({"prod masked 1", F(masked_fill(x, mask, 1)), kProduct, R, kProduct}, 0);
}

TEST(PartialAlgebra, WhatDoesNotPassIsReducedOnce) {
  for (const Passing& c : {Passing{"sum + 1", F(add(x, 1)), kSum, R, R},
                           {"1 - sum", F(rsub(x, 1)), kSum, R, R},
                           {"sum masked", F(masked_fill(x, mask, -2)), kSum, R, R},
                           {"relu of a sum", F(relu(x)), kSum, R, R},
                           {"clamp of an average", F(clamp(x, 0)), kAvg, R, R},
                           {"abs of a maximum", F(abs(x)), kMax, R, R},
                           {"max + max", F(add(x, y)), kMax, kMax, kMax},
                           {"maximum(max, sum)", F(maximum(x, y)), kMax, kSum, kMax},
                           {"sum * sum", F(mul(x, y)), kSum, kSum, kSum},
                           {"r / sum", F(div(x, y)), R, kSum, R},
                           {"sum to narrower", F(to(to(x, DType::F32), DType::F64)), kSum, R, R},
                           {"square", F(square(x)), kSum, R, R},
                           {"max * r", F(mul(x, y)), kMax, R, R},
                           {"-product", F(neg(x)), kProduct, R, R},
                           {"gt", F(gt(x, y)), kSum, R, R},
                           {"sum ** 2", F(pow(x, 2)), kSum, R, R}})
    expect_passing(c, 1);
}

TEST(PartialAlgebra, ConstantsInTheShapeOfAPartialAreReplicated) {
  for (const Placement p : {kSum, kAvg, kMax, kMin, kProduct}) {
    expect_passing({"zeros_like", F(zeros_like(x)), p, R, R}, 0);
    expect_passing({"ones_like", F(ones_like(x)), p, R, R}, 0);
  }
}

// --- values ---

TEST(Pointwise, SpecialValuesComeOutAsInPyTorch) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const DType dtype : {DType::F32, DType::F64, DType::BF16}) {
      const Tensor x = of(world, {kNaN, kInf, -kInf, 0, -0.0}, dtype);
      const double softplus0 = of(world, {std::log(2)}, dtype).item();
      const auto same = [&](const Tensor& got, const Values& want) {
        const Values values = got.to_vector();
        for (std::size_t i = 0; i < want.size(); ++i)
          EXPECT_TRUE(values[i] == want[i] || (std::isnan(values[i]) && std::isnan(want[i])))
              << dtype << " element " << i << ": " << values[i] << " for " << want[i];
      };
      same(relu(x), {kNaN, kInf, 0, 0, 0});
      same(clamp(x, -1, 1), {kNaN, 1, -1, 0, 0});
      same(sign(x), {0, 1, -1, 0, 0});
      same(reciprocal(x), {kNaN, 0, 0, kInf, -kInf});
      same(exp(x), {kNaN, kInf, 0, 1, 1});
      same(maximum(x, zeros_like(x)), {kNaN, kInf, 0, 0, 0});
      same(minimum(zeros_like(x), x), {kNaN, 0, -kInf, 0, 0});
      same(isnan(x), {1, 0, 0, 0, 0});
      same(logical_not(x), {0, 0, 0, 1, 1});
      same(eq(x, x), {0, 1, 1, 1, 1});
      same(softplus(x), {kNaN, kInf, 0, softplus0, softplus0});
    }
    co_return;
  });
}

TEST(Pointwise, EqualElementsShareTheGradientOfAnExtreme) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor a = of(world, {1, 2, 3}), b = of(world, {1, 5, 0});
    a.set_requires_grad(true);
    b.set_requires_grad(true);
    run_backward(maximum(a, b), of(world, {2, 2, 2}));
    EXPECT_EQ(a.grad().to_vector(), (Values{1, 0, 2}));
    EXPECT_EQ(b.grad().to_vector(), (Values{1, 2, 0}));
    co_return;
  });
}

TEST(Pointwise, PowersOfZeroHaveTheGradientsOfPyTorch) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor a = of(world, {0, 0, 2}), b = of(world, {0, 2, 0});
    a.set_requires_grad(true);
    b.set_requires_grad(true);
    run_backward(sum(pow(a, b)));
    EXPECT_EQ(a.grad().to_vector(), (Values{0, 0, 0}));
    EXPECT_EQ(b.grad().to_vector(), (Values{0, 0, std::log(2)}));
    Tensor x = of(world, {0, 2});
    x.set_requires_grad(true);
    run_backward(sum(pow(x, 0)));
    EXPECT_EQ(x.grad().to_vector(), (Values{0, 0}));
    co_return;
  });
}

TEST(Pointwise, ShardsThatBroadcastingStretchesAreGathered) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"tp"});
    const Tensor column = testing::counting(world, {4, 1}), row = testing::counting(world, {1, 5});
    const DTensor a = distribute_tensor(column, mesh, Shard(1), std::nullopt);
    const DTensor b = distribute_tensor(row, mesh, Shard(0), std::nullopt);
    EXPECT_EQ(full_tensor(mul(a, b)).to_vector(), mul(column, row).to_vector());
    const DTensor cut = distribute_tensor(row, mesh, Shard(1), std::nullopt);
    CountingObserver seen(world);
    const DTensor whole = distribute_tensor(column, mesh, Replicate(), std::nullopt);
    EXPECT_EQ(add(whole, cut).layout(), Layout(Shard(1)));
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

TEST(ElementwiseLayout, PartialsStayPartialThroughLinearOperatorsOnly) {
  without_moving([](World& world, const DeviceMesh& mesh) {
    const DTensor p = placed(world, mesh, {3, 5}, Partial());
    const DTensor r = placed(world, mesh, {3, 5}, Replicate());
    for (const DTensor& y : {p + p, p + r, p * r, div(p, r), p * 2.0, neg(p), view(p, {15}),
                             transpose(p, 0, 1), sum(p)})
      EXPECT_EQ(y.layout(), Layout(Partial())) << y;
  });
  without_moving(
      [](World& world, const DeviceMesh& mesh) {
        const DTensor p = placed(world, mesh, {4, 5}, Partial());
        EXPECT_FALSE(silu(p).layout().has_partial());
        EXPECT_FALSE(add(p, 1.0).layout().has_partial());
      },
      2);
}

}  // namespace
}  // namespace coshard
