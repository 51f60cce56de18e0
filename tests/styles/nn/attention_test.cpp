// Self-attention: heads that follow from the width at hand, groups, and sizes that do not divide.
#include <gtest/gtest.h>

#include <coshard/styles/nn/attention.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(AttentionModule, IsCausalAttentionOfItsProjections) {
  on_ranks(1, [](World& world) -> Task<void> {
    const nn::AttentionOptions options{
        .dim = 8, .heads = 4, .kv_heads = 2, .rotary = false, .dtype = DType::F64};
    nn::Attention attend(options, world);
    EXPECT_EQ(attend.head_dim, 2);
    EXPECT_EQ(attend.wk.weight.shape(), (Shape{4, 8}));
    const Tensor x = random(world, Shape{1, 3, 8});
    const Tensor y = co_await attend.forward(x);
    EXPECT_EQ(y.shape(), (Shape{1, 3, 8}));
    const auto heads = [&](const Tensor& weight, std::int64_t count) {
      return transpose(view(linear(x, weight.detach()), {1, 3, count, 2}), 1, 2);
    };
    const Tensor seen = attention(heads(attend.wq.weight, 4), heads(attend.wk.weight, 2),
                                  heads(attend.wv.weight, 2));
    expect_close(y, linear(reshape(transpose(seen, 1, 2), {1, 3, 8}), attend.wo.weight.detach()));
  });
}

TEST(AttentionModule, ALaterTokenDoesNotReachAnEarlierOne) {
  on_ranks(1, [](World& world) -> Task<void> {
    const nn::AttentionOptions options{.dim = 4, .heads = 2, .dtype = DType::F64};
    nn::Attention attend(options, world);
    const Tensor x = random(world, Shape{1, 3, 4});
    const Tensor before = co_await attend.forward(x);
    const Tensor changed = clone(x);
    fill_(select(changed, 1, 2), 5);
    const Tensor after = co_await attend.forward(changed);
    expect_close(narrow(after, 1, 0, 2), narrow(before, 1, 0, 2));
    EXPECT_NE(after.to_vector().back(), before.to_vector().back());
  });
}

TEST(AttentionModule, RefusesSizesThatDoNotDivide) {
  on_ranks(1, [](World& world) -> Task<void> {
    const nn::AttentionOptions heads{.dim = 9, .heads = 2},
        groups{.dim = 8, .heads = 4, .kv_heads = 3};
    EXPECT_THROW(nn::Attention(heads, world), Error);
    EXPECT_THROW(nn::Attention(groups, world), Error);
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
