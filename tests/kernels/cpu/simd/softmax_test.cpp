#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

TEST(Softmax, AndItsGradientMatchTheReference) {
  const std::int64_t shapes[][3] = {{1, 1, 1},   {3, 17, 1}, {5, 100, 1}, {2, 9, 33},
                                    {1, 257, 3}, {0, 4, 4},  {2, 0, 3}};
  constexpr bool kBoth[] = {false, true};
  for (const auto& [dtype, s, log] : ranges::views::cartesian_product(kFloating, shapes, kBoth)) {
    const std::int64_t count = s[0] * s[1] * s[2];
    const Data x = Data::normal(dtype, count, 1, 4);
    const Data dy = Data::normal(dtype, count, 2);
    Data y(dtype, count);
    Data want = y;
    cpu::run(Softmax{dtype, log, s[0], s[1], s[2], x.ptr(), y.ptr()});
    reference::run(Softmax{dtype, log, s[0], s[1], s[2], x.ptr(), want.ptr()});
    expect_close(y, want, "softmax");
    Data dx(dtype, count);
    Data want_dx = dx;
    cpu::run(SoftmaxGrad{dtype, log, s[0], s[1], s[2], dy.ptr(), want.ptr(), dx.ptr()});
    reference::run(SoftmaxGrad{dtype, log, s[0], s[1], s[2], dy.ptr(), want.ptr(), want_dx.ptr()});
    expect_close(dx, want_dx, tolerance(dtype) * 10, "softmax gradient");
  }
}

TEST(Softmax, IgnoresMinusInfinityAndSurvivesLargeScores) {
  Data x = Data::filled(DType::F32, 20, -INFINITY);
  x.set(3, 1e30);
  x.set(4, 1e30);
  Data y(DType::F32, 20);
  cpu::run(Softmax{DType::F32, false, 1, 20, 1, x.ptr(), y.ptr()});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(y.get(i), i == 3 || i == 4 ? 0.5 : 0.0);
}

}  // namespace
}  // namespace coshard::kernels
