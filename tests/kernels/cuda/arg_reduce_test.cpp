// Where extremes are.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaArgReduce, FindsTheFirstExtremeAndTheFirstNaN) {
  for (const DType dtype : kLineDTypes) {
    for (const LinesShape& s : kLineShapes) {
      if (s.extent == 0) continue;
      Data x = Data::integers(dtype, s.count(), 1, dtype == DType::Bool ? 0 : -9, 9);
      if (is_floating(dtype)) spoil(x, 2 * s.extent + 1);
      const Data values(dtype, s.lines()), places(DType::I64, s.lines());
      for (const bool largest : {false, true}) {
        const auto make = [&](auto at) {
          return ArgReduce{largest, dtype, s.outer,    s.extent,
                           s.inner, at(x), at(values), at(places)};
        };
        expect_as_reference("place" + s.text(), {&values, &places}, make);
        expect_as_reference("place" + s.text(), {&places}, make, 0);
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
