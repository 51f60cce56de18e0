// The ends of what operators accept, and layouts and memory that they keep.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::CountingObserver;
using testing::on_ranks;

// Runs `body` on one rank.
template <class Body>
void alone(Body body) {
  on_ranks(1, [body](World& world) -> Task<void> {
    body(world);
    co_return;
  });
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "another kind";
  }
  return "accepted";
}

TEST(Edges, FlattenAndUnflattenOfOneDimension) {
  alone([](World& world) {
    const Tensor x = counting(world, {3});
    EXPECT_EQ(flatten(x).shape(), (Shape{3}));
    EXPECT_EQ(flatten(x).to_vector(), x.to_vector());
    EXPECT_EQ(flatten(counting(world, {2, 3}), 1, 1).shape(), (Shape{2, 3}));
    EXPECT_EQ(flatten(counting(world, {2, 3}), 0, 0).shape(), (Shape{2, 3}));
    EXPECT_EQ(flatten(counting(world, {2, 3, 4}), 0, 1).shape(), (Shape{6, 4}));
    EXPECT_EQ(unflatten(x, 0, Shape{3}).shape(), (Shape{3}));
    EXPECT_EQ(unflatten(x, 0, Shape{-1, 1}).shape(), (Shape{3, 1}));
  });
}

TEST(Edges, TopkOfAllOfNoneAndOfOneTooMany) {
  alone([](World& world) {
    const Tensor x =
        Tensor::from_values(world.device(), {4}, DType::F64, std::vector<double>{2, 9, -1, 4});
    EXPECT_EQ(topk(x, 4).values.to_vector(), (std::vector<double>{9, 4, 2, -1}));
    EXPECT_EQ(topk(x, 4).indices.to_vector(), (std::vector<double>{1, 3, 0, 2}));
    EXPECT_EQ(topk(x, 0).values.shape(), (Shape{0}));
    EXPECT_EQ(refusal([&] { topk(x, 5); }).find("topk: 5 along dimension"), 0U);
    EXPECT_EQ(refusal([&] { topk(x, -1); }).find("topk: -1 along dimension"), 0U);
    EXPECT_EQ(kthvalue(x, 4).values.item(), 9);
    EXPECT_NE(refusal([&] { kthvalue(x, 0); }), "accepted");
    EXPECT_NE(refusal([&] { kthvalue(x, 5); }), "accepted");
  });
}

TEST(Edges, DropoutTakesProbabilitiesFromZeroToOneAndFloatsOnly) {
  alone([](World& world) {
    const Tensor x = counting(world, {6});
    EXPECT_EQ(dropout(x, 0).to_vector(), x.to_vector());
    EXPECT_EQ(dropout(x, 1).to_vector(), std::vector<double>(6, 0));
    for (const double p : {-0.1, 1.1})
      EXPECT_EQ(refusal([&] { dropout(x, p); }).find("dropout: probability "), 0U);
    const Tensor integers = counting(world, {6}, DType::I64);
    EXPECT_EQ(refusal([&] { dropout(integers, 0.5); }).find("dropout: "), 0U);
  });
}

TEST(Edges, ClippingRefusesANormTypeOfZeroOrLess) {
  on_ranks(1, [](World& world) -> Task<void> {
    Tensor x = counting(world, {3});
    x.set_requires_grad(true);
    for (const double p : {0.0, -2.0}) {
      std::string text = "accepted";
      try {
        Task<Tensor> clipped = clip_grad_norm({x}, 1.0, p);
        co_await std::move(clipped);
      } catch (const Error& error) {
        text = error.what();
      }
      EXPECT_NE(text.find("clip_grad_norm: norm type "), std::string::npos) << text;
    }
  });
}

// What minds neither where a part lies nor whether it is one range passes it through.
TEST(Edges, StridedPartsStayWhereTheyAre) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Layout strided(StridedShard(1, 2));
    const DTensor x = DTensor(
        redistribute(distribute_tensor(counting(world, {2, 8, 5}), mesh, Replicate(), std::nullopt),
                     strided)
            .tensor());
    const DTensor weight = distribute_tensor(counting(world, {5}), mesh, Replicate(), std::nullopt);
    CountingObserver seen(world);
    EXPECT_EQ(rms_norm(x, weight).layout(), strided);
    const DTensor index = mul(to(x, DType::I64), std::int64_t{0});
    EXPECT_EQ(scatter(x, 0, index, 0.5).layout(), strided);
    EXPECT_EQ(scatter(x, 0, index, x).layout(), strided);
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

// A view shares memory wherever strides can say it, also of what is not contiguous.
TEST(Edges, AViewSharesMemoryWhereStridesCanSayIt) {
  alone([](World& world) {
    const Tensor x = counting(world, {4, 6});
    const Tensor rows = slice(x, 1, 0, 3);
    const Tensor turned = transpose(x, 0, 1);
    for (const Tensor& y : {view(x, {4, 6}), view(x, {24}), view(rows, {2, 2, 3}),
                            view(rows, {4, 3}), view(turned, {2, 3, 4}), view(turned, {6, 1, 4})})
      EXPECT_EQ(y.storage()->buffer, x.storage()->buffer) << y;
    EXPECT_NE(reshape(turned, {24}).storage()->buffer, x.storage()->buffer);
  });
}

TEST(Edges, TheGradientOfAtan2IsZeroAtTheOrigin) {
  alone([](World& world) {
    Tensor y = Tensor::from_values(world.device(), {3}, DType::F64, {0.0, 0.0, 1.0});
    y.set_requires_grad(true);
    Tensor x = Tensor::from_values(world.device(), {3}, DType::F64, {0.0, 2.0, 0.0});
    x.set_requires_grad(true);
    run_backward(sum(atan2(y, x)));
    EXPECT_EQ(y.grad().to_vector(), (std::vector<double>{0, 0.5, 0}));
    EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{0, 0, -1}));
  });
}

TEST(Edges, TheGradientOfClampPassesBetweenTheBoundsOnly) {
  alone([](World& world) {
    const double inf = std::numeric_limits<double>::infinity();
    Tensor x = Tensor::from_values(world.device(), {6}, DType::F64, {0.5, 1, 1.5, 2, 3, inf});
    x.set_requires_grad(true);
    const auto gradient = [&](std::optional<Scalar> min, std::optional<Scalar> max) {
      return run_grad({clamp(x, min, max).sum()}, {x})[0].to_vector();
    };
    EXPECT_EQ(gradient(1, 2), (std::vector<double>{0, 0, 1, 0, 0, 0}));
    EXPECT_EQ(gradient(1, std::nullopt), (std::vector<double>{0, 0, 1, 1, 1, 1}));
    EXPECT_EQ(gradient(std::nullopt, 2), (std::vector<double>{1, 1, 1, 0, 0, 0}));
  });
}

// Also where they move nothing.
TEST(Edges, PadAndRollGiveCopies) {
  alone([](World& world) {
    const Tensor x = counting(world, {2, 3});
    zero_(roll(x, 3, 1));
    for (const Margins& margins : {Margins{0, 0}, Margins{0, -1}, Margins{}, Margins{1, 0}}) {
      const Tensor y = pad(x, margins);
      zero_(y);
      EXPECT_EQ(x.to_vector(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
    }
  });
}

TEST(Edges, StartsLengthsAndStepsAtTheEndsOfTheirType) {
  alone([](World& world) {
    constexpr std::int64_t kMost = INT64_MAX, kLeast = INT64_MIN;
    const Tensor x = counting(world, {3, 4});
    EXPECT_TRUE(
        refusal([&] { narrow(x, 0, 1, kMost); }).starts_with("narrow: 9223372036854775807"));
    EXPECT_TRUE(refusal([&] { narrow(x, 0, kMost, 1); }).starts_with("narrow: 1 elements from"));
    EXPECT_EQ(slice(x, 0, kLeast, kMost, kMost).to_vector(), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(slice(x, 1, 2, kMost, kMost - 1).to_vector(), (std::vector<double>{3, 7, 11}));
    EXPECT_EQ(diagonal(x, kLeast).shape(), (Shape{0}));
    EXPECT_EQ(diagonal(x, kMost).shape(), (Shape{0}));
    EXPECT_EQ(roll(x, kLeast, 0).to_vector(), roll(x, -2, 0).to_vector());
    EXPECT_EQ(roll(x, kMost, 1).to_vector(), roll(x, 3, 1).to_vector());
    EXPECT_TRUE(refusal([&] { linspace(world, 0, 1, kMost); }).starts_with("linspace: shape"));
    EXPECT_EQ(refusal([&] { linspace(world, 0, 1, -1); }), "linspace: size -1 in shape [-1]");
  });
}

TEST(Edges, RefusalsNameTheOperatorThatWasCalled) {
  alone([](World& world) {
    const Tensor x = counting(world, {3, 4}), ints = ones(world, {2}, DType::I64);
    EXPECT_EQ(refusal([&] { var(ints); }), "var: i64[2] is not floating");
    EXPECT_EQ(
        refusal([&] {
          einsum("abcde,fghi->abcdefghi", ones(world, {1, 1, 1, 1, 1}), ones(world, {1, 1, 1, 1}));
        }),
        "einsum: more than 8 dimensions in the result of abcde,fghi->abcdefghi");
    EXPECT_EQ(refusal([&] { stdev(ints); }), "stdev: i64[2] is not floating");
    EXPECT_EQ(refusal([&] { masked_fill(x, {}, 1); }), "masked_fill: the condition is undefined");
    // A device tells where its results are read.
    const std::string gathered = refusal([&] { index_select(x, 0, ints * 7).to_vector(); });
    EXPECT_EQ(gathered.find("gather: index 7 is outside a dimension of 3 elements"), 0U);
    const Tensor at = full(world, {1, 1}, -1, DType::I64);
    const std::string scattered = refusal([&] { scatter(x, 0, at, 2).to_vector(); });
    EXPECT_EQ(scattered.find("scatter: index -1 is outside a dimension of 3 elements"), 0U);
  });
}

// As PyTorch: "value cannot be converted to type int64_t without overflow".
TEST(Edges, NumbersThatADtypeCannotHoldAreRefused) {
  alone([](World& world) {
    const double nan = std::nan(""), inf = INFINITY;
    const Tensor ints = ones(world, {2}, DType::I64), mask = ones(world, {2}, DType::Bool);
    EXPECT_EQ(refusal([&] { full(world, {2}, nan, DType::I64); }), "full: nan does not fit i64");
    EXPECT_EQ(refusal([&] { full(world, {2}, 3e9, DType::I32); }), "full: 3e+09 does not fit i32");
    EXPECT_EQ(refusal([&] { full(world, {2}, 1e300); }), "full: 1e+300 does not fit f32");
    EXPECT_EQ(refusal([&] { fill_(ints, inf); }), "fill_: inf does not fit i64");
    EXPECT_EQ(refusal([&] { full_like(ints, nan); }), "full_like: nan does not fit i64");
    EXPECT_EQ(refusal([&] { masked_fill(ints, mask, nan); }), "masked_fill: nan does not fit i64");
    EXPECT_EQ(refusal([&] { masked_fill_(ints, mask, 1e30); }),
              "masked_fill_: 1e+30 does not fit i64");
    EXPECT_EQ(refusal([&] { scatter(ints, 0, ints * 0, nan); }), "scatter: nan does not fit i64");
    EXPECT_EQ(refusal([&] { pad(ints, {1, 1}, nan); }), "pad: nan does not fit i64");
    EXPECT_EQ(refusal([&] { Tensor::from_values(world.device(), {1}, DType::I32, {nan}); }),
              "from_values: nan does not fit i32");
    EXPECT_EQ(full(world, {1}, -0x1p63, DType::I64).item(), -0x1p63);
    EXPECT_EQ(full(world, {1}, -0x1p31, DType::I32).item(), -0x1p31);
    EXPECT_EQ(full(world, {1}, inf, DType::F16).item(), inf);
    EXPECT_EQ(full(world, {1}, nan, DType::Bool).item(), 1);
    EXPECT_EQ(fill_(ints, 2.5).to_vector(), (std::vector<double>{2, 2}));
  });
}

TEST(Edges, ScansAndTransposesOfNoDimensionsTakeTheFirstAndTheLast) {
  alone([](World& world) {
    const Tensor x = full(world, {}, 3, DType::F64, true);
    for (const int dim : {0, -1}) {
      for (const Tensor& y : {cumsum(x, dim), cumprod(x, dim), logcumsumexp(x, dim),
                              cummax(x, dim).values, transpose(x, dim, 0)}) {
        EXPECT_EQ(y.shape(), Shape{});
        EXPECT_EQ(y.item(), 3);
      }
      EXPECT_EQ(cummin(x, dim).indices.item(), 0);
      EXPECT_EQ(refusal([&] { cumsum(x, dim + 2); }).find("cumsum: dimension"), 0U);
    }
    run_backward(cumprod(x, 0) * cummax(x, 0).values);
    EXPECT_EQ(x.grad().item(), 6);
  });
}

TEST(Edges, LabelSmoothingOutsideZeroToOneIsRefused) {
  alone([](World& world) {
    const Tensor logits = counting(world, {2, 3}), target = zeros(world, {2}, DType::I64);
    for (const double smoothing : {-0.1, 1.5, std::nan("")}) {
      const auto of = [&](const Tensor& wanted, const Tensor& weight) {
        return refusal(
            [&] { cross_entropy(logits, wanted, Reduction::Mean, -100, smoothing, weight); });
      };
      for (const std::string& text : {of(target, {}), of(target, ones(world, {3}, DType::F64)),
                                      of(ones(world, {2, 3}, DType::F64), {})})
        EXPECT_EQ(text.find("cross_entropy: label_smoothing"), 0U) << text;
    }
  });
}

}  // namespace
}  // namespace coshard
