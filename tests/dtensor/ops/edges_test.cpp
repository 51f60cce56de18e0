// The ends of what operators accept, and layouts and memory that they keep.
#include <gtest/gtest.h>

#include "dtensor/ops/ops.h"
#include "dtensor/optim/optimizer.h"
#include "dtensor/random.h"
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

}  // namespace
}  // namespace coshard
