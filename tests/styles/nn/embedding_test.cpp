// Embedding.
#include <type_traits>

#include "tests/styles/moments.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(Defaults, EmbeddingStartsNormalWithAZeroRowForPadding) {
  on_ranks(1, [](World& world) -> Task<void> {
    nn::Embedding embedding(50, 100, world, {.padding_idx = 3, .dtype = DType::F64});
    EXPECT_NEAR(standard_deviation(embedding.weight.to_vector()), 1, 0.05);
    const Tensor row = select(embedding.weight.detach(), 0, 3);
    EXPECT_EQ(row.to_vector(), std::vector<double>(100, 0));
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
