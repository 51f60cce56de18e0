// Which body the cpu takes: the vectorised one of its instruction set, or the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CpuBodies, AreOfAnInstructionSetThatIsNamed) {
  const std::string name = cpu::instruction_set();
  EXPECT_TRUE(name == "x86-64-v4" || name == "x86-64-v3" || name == "baseline") << name;
}

TEST(CpuBodies, OfFunctionsAndTypesWithoutAVectorisedOneAreTheReference) {
  for (const auto& [op, dtype] :
       {std::pair(UnaryOp::Expm1, DType::F64), std::pair(UnaryOp::Expm1, DType::F16),
        std::pair(UnaryOp::Neg, DType::I64)}) {
    const Data x = Data::normal(dtype, 100, 1);
    Data got(dtype, 100), want(dtype, 100);
    cpu::run(Unary{op, dtype, 100, x.ptr(), got.ptr()});
    reference::run(Unary{op, dtype, 100, x.ptr(), want.ptr()});
    EXPECT_EQ(got, want) << dtype;
  }
}

TEST(CpuBodies, AFillOfMinusZeroIsNoFillOfZero) {
  Data data = Data::filled(DType::F32, 5, 7);
  cpu::run(Fill{data.ptr(), DType::F32, 4, 0});
  EXPECT_EQ(data.get(3), 0);
  EXPECT_FALSE(std::signbit(data.get(3)));
  EXPECT_EQ(data.get(4), 7);
  cpu::run(Fill{data.ptr(), DType::F32, 5, -0.0});
  EXPECT_TRUE(std::signbit(data.get(4)));
}

TEST(CpuBodies, RowsThatAreNotContiguousAreRightToo) {
  Data q = Data::normal(DType::F32, 24, 1), k = Data::normal(DType::F32, 24, 2),
       got(DType::F32, 24), want(DType::F32, 24), lse(DType::F32, 6), other(DType::F32, 6);
  const std::vector<int> turned{0, 1, 3, 2};  // the last dimension is not innermost
  const auto args = [&](Data& out, Data& sums) {
    return Attention{out.view({1, 2, 3, 4}),
                     q.view({1, 2, 3, 4}, turned),
                     k.view({1, 2, 3, 4}, turned),
                     k.view({1, 2, 3, 4}),
                     sums.ptr(),
                     0.5,
                     true,
                     0,
                     View{}};
  };
  cpu::run(args(got, lse));
  reference::run(args(want, other));
  expect_close(got, want, "attention of turned rows");
}

}  // namespace
}  // namespace coshard::kernels
