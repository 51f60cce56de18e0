// The reference copies: strides, casts, fills.
#include <gtest/gtest.h>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(ReferenceCopy, ReadsAndWritesAnyStrides) {
  Data from(DType::F32, 6), to(DType::F32, 6);
  for (int i = 0; i < 6; ++i) from.set(i, i);
  View turned = to.view({2, 3}, {1, 0});
  reference::run(Copy{turned, from.view({2, 3})});
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(to.get(i), (std::vector<double>{0, 3, 1, 4, 2, 5})[static_cast<std::size_t>(i)]);
}

TEST(ReferenceCopy, CastsAsCDoesAndToBoolByTruth) {
  Data from(DType::F64, 3), ints(DType::I32, 3), truths(DType::Bool, 3), halves(DType::BF16, 3);
  from.set(0, -1.75);
  from.set(1, 0);
  from.set(2, 257);
  reference::run(Copy{ints.view({3}), from.view({3})});
  reference::run(Copy{truths.view({3}), from.view({3})});
  reference::run(Copy{halves.view({3}), from.view({3})});
  EXPECT_EQ(ints.get(0), -1);
  EXPECT_EQ(ints.get(2), 257);
  EXPECT_EQ(truths.get(0), 1);
  EXPECT_EQ(truths.get(1), 0);
  EXPECT_EQ(halves.get(0), -1.75);
  EXPECT_EQ(halves.get(2), 256);  // to even
}

TEST(ReferenceCopy, FillsEveryElementAndNoOther) {
  Data data(DType::I64, 4);
  reference::run(Fill{data.ptr(), DType::I64, 3, -5});
  EXPECT_EQ(data.get(0), -5);
  EXPECT_EQ(data.get(2), -5);
  EXPECT_EQ(data.get(3), 0);
}

}  // namespace
}  // namespace coshard::kernels
