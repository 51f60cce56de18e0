// Modules one after the other.
#include <gtest/gtest.h>

#include <coshard/styles/nn/activation.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/nn/sequential.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(SequentialModule, FeedsEachOutputToTheNext) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Sequential net;
    auto& first = net.add<nn::Linear>("first", 2, 1, world,
                                      nn::LinearOptions{.bias = false, .dtype = DType::F64});
    net.add<nn::ReLU>("relu");
    EXPECT_EQ(net.size(), 2U);
    fill_(first.weight.detach(), -1);
    const Tensor x = Tensor::from_values(world.device(), {2, 2}, DType::F64, {1, 2, -3, -4});
    const Tensor y = co_await net.forward(x);
    EXPECT_EQ(y.to_vector(), (std::vector<double>{0, 7}));
    EXPECT_EQ(net.named_parameters().front().name, "first.weight");
  });
}

TEST(SequentialModule, OfNothingGivesItsInputAndANameIsTakenOnce) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Sequential net;
    const Tensor x = full(world, {2}, 1, DType::F64);
    const Tensor y = co_await net.forward(x);
    EXPECT_EQ(y.to_vector(), x.to_vector());
    net.add<nn::ReLU>("a");
    EXPECT_THROW(net.add<nn::ReLU>("a"), Error);
  });
}

}  // namespace
}  // namespace coshard::testing
