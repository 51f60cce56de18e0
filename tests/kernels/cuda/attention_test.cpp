#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaAttention, MatchesTheReferenceForDrawnShapes) {
  std::mt19937 engine(7);
  const auto draw = [&](std::vector<std::int64_t> of) {
    return of[std::uniform_int_distribution<std::size_t>(0, of.size() - 1)(engine)];
  };
  for (int turn = 0; turn < 30; ++turn) {
    Case c{
        draw({1, 2}),         0, draw({1, 2}), draw({1, 7, 64, 65, 130}), draw({1, 7, 64, 65, 130}),
        draw({4, 16, 40, 64})};
    c.heads = c.kv_heads * draw({1, 2});
    c.causal = draw({0, 1}) == 1;
    c.mask = static_cast<Mask>(draw({0, 0, 1, 2}));
    c.interleaved = draw({0, 1}) == 1;
    c.shift = draw({kSquare, 0, 5, -3});
    expect_matches(kFloating[static_cast<std::size_t>(draw({0, 1, 2}))], c);
  }
}

TEST(CudaAttention, OfWindowsMatchesTheReference) {
  std::mt19937 engine(11);
  const auto draw = [&](std::vector<std::int64_t> of) {
    return of[std::uniform_int_distribution<std::size_t>(0, of.size() - 1)(engine)];
  };
  for (int turn = 0; turn < 40; ++turn) {
    Case c{draw({1, 2}),
           0,
           draw({1, 2}),
           draw({1, 7, 31, 64, 130, 200}),
           draw({7, 64, 130, 300}),
           draw({4, 40, 64, 80}),
           true};
    c.heads = c.kv_heads * draw({1, 2});
    c.mask = static_cast<Mask>(draw({0, 0, 0, 1, 2}));
    c.interleaved = draw({0, 1}) == 1;
    c.shift = draw({kSquare, kSquare, 0, 5, -3});
    c.window = draw({1, 5, 16, 33, 64, 100, 1000});
    expect_matches(kFloating[static_cast<std::size_t>(draw({0, 1, 2, 3}))], c);
  }
}

// A few queries: heads of a group share a tile, and many keys are cut into parts.
TEST(CudaAttention, OfAFewQueriesMatchesTheReference) {
  const Case cases[] = {
      {1, 8, 2, 1, 1100, 64, true},
      {2, 3, 1, 1, 520, 96, false, Mask::Keep},
      {1, 2, 2, 3, 600, 128, true},
      {1, 4, 1, 7, 700, 20, true, Mask::None, 0, 400},
      {1, 1, 1, 2, 530, 256, false},
      {1, 20, 1, 1, 300, 64, true},
      {1, 2, 1, 5, 515, 64, true, Mask::Bias},
      {1, 1, 1, 4, 600, 64, true, Mask::None, 0, -2},
      {1, 4, 2, 3, 1100, 64, true, Mask::None, 0, kSquare, false, 0.125, 700},
      {1, 2, 1, 1, 600, 64, true, Mask::None, 0, kSquare, false, 0.125, 20},
      {2, 4, 2, 1, 600, 64, false, Mask::None, 0, kSquare, false, 0.125, 0, true},
      {3, 2, 1, 70, 90, 20, false, Mask::None, 0, kSquare, false, 0.125, 0, true},
      {2, 2, 2, 40, 40, 8, false, Mask::Bias, 0, kSquare, false, 0.125, 0, true},
  };
  for (const DType dtype : kShort)
    for (const Case& c : cases) expect_matches(dtype, c, Part::Forward);
}

TEST(CudaAttention, TakesAScaleThatIsNotPositive) {
  for (const double scale : {-0.125, 0.0}) {
    Case c{1, 1, 1, 40, 33, 64, true};
    c.scale = scale;
    for (const DType dtype : {DType::F32, DType::BF16}) expect_matches(dtype, c);
    c.tq = 3;
    expect_matches(DType::F16, c);
  }
}

TEST(CudaAttention, GivesZeroToAQueryThatSeesNoKey) {
  for (const DType dtype : kFloating) {
    const auto got = on_device(dtype, {1, 1, 1, 5, 2, 4, true});
    for (int i = 0; i < 3 * 4; ++i) {
      EXPECT_EQ(got[0].get(i), 0);
      EXPECT_EQ(got[2].get(i), 0);
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[1].get(i), -INFINITY);
    EXPECT_GT(got[1].get(3), -INFINITY);
  }
}

TEST(CudaAttention, RefusesHeadsThatDoNotGroupOrAreTooWide) {
  EXPECT_ANY_THROW(on_device(DType::F32, {1, 3, 2, 4, 4, 8}));
  EXPECT_ANY_THROW(on_device(DType::F32, {1, 1, 1, 4, 4, 260}));
}

}  // namespace
}  // namespace coshard::kernels
