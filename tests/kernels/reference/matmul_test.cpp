// Products by the reference: alpha, beta, batches, integers, epilogues.
#include <gtest/gtest.h>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

Data counted(DType dtype, std::int64_t n) {
  Data data(dtype, n);
  for (std::int64_t i = 0; i < n; ++i) data.set(i, static_cast<double>(i + 1));
  return data;
}

TEST(ReferenceMatmul, ScalesTheProductAndWhatWasThere) {
  Data a = counted(DType::F64, 6), b = counted(DType::F64, 6), out = counted(DType::F64, 4);
  reference::run(Matmul{out.view({2, 2}), a.view({2, 3}), b.view({3, 2}), 2, -1});
  EXPECT_EQ(out.get(0), 2 * 22 - 1);
  EXPECT_EQ(out.get(1), 2 * 28 - 2);
  EXPECT_EQ(out.get(3), 2 * 64 - 4);
}

TEST(ReferenceMatmul, WithoutAnInnerDimensionIsBetaTimesWhatWasThere) {
  Data none(DType::F32, 0), out = counted(DType::F32, 4);
  reference::run(Matmul{out.view({2, 2}), none.view({2, 0}), none.view({0, 2}), 1, 3});
  EXPECT_EQ(out.get(0), 3);
  EXPECT_EQ(out.get(3), 12);
}

TEST(ReferenceMatmul, OverwritesNaNWithBetaZeroAndRunsBatchesOfIntegers) {
  Data a = counted(DType::I64, 4), b = counted(DType::I64, 2), out(DType::I64, 2);
  reference::run(Matmul{out.view({2, 1, 1}), a.view({2, 1, 2}), [&] {
                          View shared = b.view({2, 2, 1});
                          shared.strides[0] = 0;
                          return shared;
                        }()});
  EXPECT_EQ(out.get(0), 1 + 4);
  EXPECT_EQ(out.get(1), 3 + 8);
  Data one = counted(DType::F32, 1), nan = Data::filled(DType::F32, 1, NAN);
  reference::run(Matmul{nan.view({1, 1}), one.view({1, 1}), one.view({1, 1})});
  EXPECT_EQ(nan.get(0), 1);
}

TEST(ReferenceMatmul, AddsABiasToEachRowAndSumsRowsForItsGradient) {
  Data a = counted(DType::F64, 4), b = counted(DType::F64, 4), out(DType::F64, 4);
  Data bias = counted(DType::F64, 2), sums(DType::F64, 2);
  Matmul args{out.view({2, 2}), a.view({2, 2}), b.view({2, 2})};
  args.bias = bias.ptr();
  reference::run(args);
  EXPECT_EQ(out.get(0), 7 + 1);
  EXPECT_EQ(out.get(3), 22 + 2);
  args.bias = nullptr;
  args.epilogue = Epilogue::BiasGrad;
  args.aux = sums.ptr();
  reference::run(args);
  EXPECT_EQ(sums.get(0), 1 + 2);
  EXPECT_EQ(sums.get(1), 3 + 4);
}

}  // namespace
}  // namespace coshard::kernels
