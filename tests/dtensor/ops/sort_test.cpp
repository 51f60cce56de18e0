// sort, topk and kthvalue.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::alone;
using testing::refusal;
using testing::values;

TEST(Edges, TopkOfAllOfNoneAndOfOneTooMany) {
  alone([](World& world) {
    const Tensor x =
        Tensor::from_values(world.device(), {4}, DType::F64, std::vector<double>{2, 9, -1, 4});
    EXPECT_EQ(topk(x, 4).values.to_vector(), (std::vector<double>{9, 4, 2, -1}));
    EXPECT_EQ(topk(x, 4).indices.to_vector(), (std::vector<double>{1, 3, 0, 2}));
    EXPECT_EQ(topk(x, 0).values.shape(), (Shape{0}));
    EXPECT_EQ(refusal([&] { topk(x, 5); }).find("topk: k 5"), 0U);
    EXPECT_EQ(refusal([&] { topk(x, -1); }).find("topk: k -1"), 0U);
    EXPECT_EQ(kthvalue(x, 4).values.item(), 9);
    EXPECT_NE(refusal([&] { kthvalue(x, 0); }), "accepted");
    EXPECT_NE(refusal([&] { kthvalue(x, 5); }), "accepted");
  });
}

}  // namespace
}  // namespace coshard
