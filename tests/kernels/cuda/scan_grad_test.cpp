// Gradients of scans.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaScanGrad, MatchesTheReference) {
  for (const ScanOp op : {ScanOp::Product, ScanOp::LogSumExp}) {
    for (const DType dtype : kFloating) {
      for (const LinesShape& s : kLineShapes) {
        if (s.extent > 300) continue;
        Data x = Data::normal(dtype, s.count(), 1);
        for (std::int64_t i = 20; i < x.count(); i += 45)
          x.set(i, op == ScanOp::Product ? 0 : -std::numeric_limits<double>::infinity());
        const Data dy = Data::normal(dtype, s.count(), 2);
        Data y(dtype, s.count());
        reference::run(
            Scan{op, false, dtype, s.outer, s.extent, s.inner, x.ptr(), y.ptr(), nullptr});
        const Data dx(dtype, s.count());
        expect_as_reference("scan gradient" + s.text(), {&dx}, [&](auto at) {
          return ScanGrad{op, dtype, s.outer, s.extent, s.inner, at(dy), at(x), at(y), at(dx)};
        });
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
