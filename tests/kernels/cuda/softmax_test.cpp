#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {
using namespace testing;

TEST(CudaSoftmax, MatchesTheReferenceOnLinesOfEveryLength) {
  for (const DType dtype : kFloating) {
    for (const LinesShape& s : kLineShapes) {
      for (const bool log : {false, true}) {
        const Data x = Data::normal(dtype, s.count(), 1, 3);
        const Data y(dtype, s.count());
        expect_as_reference("softmax" + s.text(), {&y}, [&](auto at) {
          return Softmax{dtype, log, s.outer, s.extent, s.inner, at(x), at(y)};
        });
      }
    }
  }
}

TEST(CudaSoftmax, OfNaNAndInfinitiesIsThatOfTheReference) {
  for (const LinesShape& s : {LinesShape{9, 40, 1}, {1, 40, 9}, {6, 700, 1}}) {
    Data x = Data::normal(DType::F32, s.count(), 1);
    spoil(x, s.extent + 3);
    for (std::int64_t e = 0; e < s.extent; ++e)
      x.set(e * s.inner, -std::numeric_limits<double>::infinity());
    const Data y(DType::F32, s.count());
    for (const bool log : {false, true}) {
      expect_as_reference("softmax" + s.text(), {&y}, [&](auto at) {
        return Softmax{DType::F32, log, s.outer, s.extent, s.inner, at(x), at(y)};
      });
    }
  }
}

TEST(CudaSoftmaxGrad, MatchesTheReference) {
  for (const DType dtype : kFloating) {
    for (const LinesShape& s : kLineShapes) {
      for (const bool log : {false, true}) {
        const Data x = Data::normal(dtype, s.count(), 1, 2);
        const Data dy = Data::normal(dtype, s.count(), 2);
        Data y(dtype, s.count());
        reference::run(Softmax{dtype, log, s.outer, s.extent, s.inner, x.ptr(), y.ptr()});
        const Data dx(dtype, s.count());
        expect_as_reference("softmax gradient" + s.text(), {&dx}, [&](auto at) {
          return SoftmaxGrad{dtype, log, s.outer, s.extent, s.inner, at(dy), at(y), at(dx)};
        });
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
