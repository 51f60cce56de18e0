// Sums of powers, as clipping takes them.
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaPowSum, MatchesTheReferenceAndIsTheSameEveryTime) {
  for (const DType dtype : kFloating) {
    for (const std::int64_t count : {0, 1, 17, 1030, 30000}) {
      for (const double p : {0.0, 1.0, 2.0, 3.5}) {
        const Data x = Data::normal(dtype, count, 1), result(DType::F64, 2);
        double want = 0;
        reference::run(PowSum{dtype, count, x.ptr(), p, &want});
        OnDevice on;
        auto* to = static_cast<double*>(on.put(result));
        for (int i = 0; i < 2; ++i) on.run(PowSum{dtype, count, on.put(x), p, to + i});
        const Data got = on.get(result);
        EXPECT_NEAR(got.get(0), want, 1e-12 * (1 + want)) << dtype << " " << count << " " << p;
        EXPECT_EQ(got.get(0), got.get(1));
      }
    }
  }
}

TEST(CudaPowSum, FindsNaNAndSumsBeyondTheRangeOfF32) {
  Data x = Data::filled(DType::F32, 5000, 1e30);
  const Data result(DType::F64, 1);
  {
    OnDevice on;
    on.run(PowSum{DType::F32, 5000, on.put(x), 2, static_cast<double*>(on.put(result))});
    EXPECT_NEAR(on.get(result).get(0) / 5e63, 1, 1e-6);
  }
  x.set(4321, std::nan(""));
  for (const double p : {0.0, 2.0}) {
    OnDevice on;
    on.run(PowSum{DType::F32, 5000, on.put(x), p, static_cast<double*>(on.put(result))});
    EXPECT_TRUE(std::isnan(on.get(result).get(0))) << p;
  }
}

}  // namespace
}  // namespace coshard::kernels
