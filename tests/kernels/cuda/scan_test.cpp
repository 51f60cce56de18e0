#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {

using namespace testing;

const std::vector<ScanOp> kScans = {ScanOp::Sum, ScanOp::Product, ScanOp::LogSumExp, ScanOp::Max,
                                    ScanOp::Min};

void expect_scanned(ScanOp op, bool reverse, const Data& x, const LinesShape& s) {
  const bool extreme = op == ScanOp::Max || op == ScanOp::Min;
  const Data y(x.dtype(), s.count()), places(DType::I64, s.count());
  const auto make = [&](auto at) {
    return Scan{op,      reverse,  x.dtype(),
                s.outer, s.extent, s.inner,
                at(x),   at(y),    extreme ? at(places) : nullptr};
  };
  const std::string what = "scan " + std::to_string(static_cast<int>(op)) + s.text();
  expect_as_reference(what, {&y, &places}, make);
  if (extreme) expect_as_reference(what, {&places}, make, 0);
}

TEST(CudaScan, MatchesTheReferenceInBothDirections) {
  for (const ScanOp op : kScans) {
    for (const DType dtype : kLineDTypes) {
      if (op == ScanOp::LogSumExp && !is_floating(dtype)) continue;
      for (const LinesShape& s : kLineShapes) {
        const Data x = is_floating(dtype)
                           ? Data::normal(dtype, s.count(), 1)
                           : Data::integers(dtype, s.count(), 1, dtype == DType::Bool ? 0 : -3, 5);
        for (const bool reverse : {false, true}) expect_scanned(op, reverse, x, s);
      }
    }
  }
}

TEST(CudaScan, KeepsNaNAndTheLastOfEquals) {
  for (const ScanOp op : kScans) {
    for (const LinesShape& s : {LinesShape{5, 300, 1}, {1, 3000, 1}, {2, 40, 5}}) {
      Data x = Data::integers(DType::F32, s.count(), 1, -4, 4);
      expect_scanned(op, false, x, s);
      spoil(x, 2 * s.extent / 3);
      expect_scanned(op, false, x, s);
      expect_scanned(op, true, x, s);
    }
  }
}

TEST(CudaScan, OfIntegersHasNoLogarithms) {
  EXPECT_THROW(OnDevice().run(
                   Scan{ScanOp::LogSumExp, false, DType::I32, 1, 1, 1, nullptr, nullptr, nullptr}),
               Error);
}

}  // namespace
}  // namespace coshard::kernels
