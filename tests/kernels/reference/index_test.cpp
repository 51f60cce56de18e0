#include <coshard/runtime/error.h>
#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

const std::vector<DType> kEvery = {DType::F32, DType::F64, DType::BF16,
                                   DType::I64, DType::I32, DType::Bool};

Data data_of(DType dtype, const std::vector<double>& values) {
  Data data(dtype, static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) data.set(static_cast<std::int64_t>(i), values[i]);
  return data;
}

std::vector<double> values_of(const Data& data) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < data.count(); ++i) values.push_back(data.get(i));
  return values;
}
using Values = std::vector<double>;

TEST(GatherKernel, TakesTheIndexedElementOfEveryLineInEveryDtype) {
  for (const DType dtype : kEvery) {
    for (const DType index_dtype : {DType::I64, DType::I32}) {
      Data x = data_of(dtype, {0, 1, 1, 1, 0, 0});
      Data index = data_of(index_dtype, {2, 0, 1, 1, 1, 1, 2, 0});
      Data out(dtype, 8);
      cpu::run(Gather{out.view({2, 4}), x.view({2, 3}), index.view({2, 4}), 1});
      EXPECT_EQ(values_of(out), (Values{1, 0, 1, 1, 0, 0, 0, 1})) << dtype;
    }
  }
}

TEST(GatherKernel, StretchesAnIndexByStridesOfZeroAndReadsAnyOrderOfMemory) {
  Data x = data_of(DType::F32, {1, 4, 2, 5, 3, 6});  // [2,3], columns first
  Data index = data_of(DType::I64, {2, 2, 0, 1});
  View rows = index.view({2, 4});
  rows.strides = {0, 1};
  Data out(DType::F32, 8);
  reference::run(Gather{out.view({2, 4}), x.view({2, 3}, {1, 0}), rows, 1});
  EXPECT_EQ(values_of(out), (Values{3, 3, 1, 2, 6, 6, 4, 5}));
}

TEST(ScatterKernel, SetsTheLastOfEqualIndicesAndAddsAllOfThem) {
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::I64, DType::I32}) {
    Data index = data_of(DType::I64, {1, 1, 0, 2});
    Data src = data_of(dtype, {1, 2, 3, 4});
    Data set = data_of(dtype, {7, 7, 7, 7});
    reference::run(Scatter{set.view({4}), src.view({4}), index.view({4}), 0, false});
    EXPECT_EQ(values_of(set), (Values{3, 2, 4, 7})) << dtype;
    Data sum = data_of(dtype, {7, 7, 7, 7});
    reference::run(Scatter{sum.view({4}), src.view({4}), index.view({4}), 0, true});
    EXPECT_EQ(values_of(sum), (Values{10, 10, 11, 7})) << dtype;
  }
}

TEST(ScatterKernel, RoundsASumInBf16Once) {
  Data index = data_of(DType::I64, Values(256, 0));
  Data src = Data::filled(DType::BF16, 256, 0.25);
  Data out = Data::filled(DType::BF16, 1, 256);
  reference::run(Scatter{out.view({1}), src.view({256}), index.view({256}), 0, true});
  EXPECT_EQ(out.get(0), 320);  // element by element, every sum would round back to 256
}

TEST(ScatterKernel, PutsOneValueWhereThereIsNoSource) {
  for (const DType dtype : kEvery) {
    Data index = data_of(DType::I32, {1, 0});
    Data out = data_of(dtype, {0, 0, 1, 0});
    reference::run(Scatter{out.view({2, 2}), View{}, index.view({2, 1}), 1, false, 1});
    EXPECT_EQ(values_of(out), (Values{0, 1, 1, 0})) << dtype;
  }
}

TEST(ScatterKernel, LeavesWhatTheIndexDoesNotReach) {
  Data index = data_of(DType::I64, {0});
  Data src = data_of(DType::F32, {5});
  Data out = data_of(DType::F32, {1, 2, 3, 4});
  reference::run(Scatter{out.view({2, 2}), src.view({1, 1}), index.view({1, 1}), 0, false});
  EXPECT_EQ(values_of(out), (Values{5, 2, 3, 4}));
}

TEST(IndexKernels, RefuseAnIndexOutsideTheDimensionAndNameIt) {
  for (const double outside : {3.0, -1.0}) {
    Data index = data_of(DType::I64, {outside});
    Data x = Data::filled(DType::F32, 3, 1);
    Data one(DType::F32, 1);
    try {
      reference::run(Gather{one.view({1}), x.view({3}), index.view({1}), 0});
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      EXPECT_NE(std::string(error.what()).find("outside a dimension of 3"), std::string::npos);
    }
    EXPECT_THROW(reference::run(Scatter{x.view({3}), one.view({1}), index.view({1}), 0, true}),
                 Error);
  }
}

TEST(TriangleKernel, KeepsOneSideOfTheDiagonalOfEveryMatrix) {
  for (const DType dtype : kEvery) {
    Data x = Data::filled(dtype, 12, 1);
    Data y(dtype, 12);
    cpu::run(Triangle{y.view({2, 2, 3}), x.view({2, 2, 3}), 0, false});
    EXPECT_EQ(values_of(y), (Values{1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0})) << dtype;
    cpu::run(Triangle{y.view({4, 3}), x.view({4, 3}), -1, true});
    EXPECT_EQ(values_of(y), (Values{1, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1})) << dtype;
  }
}

TEST(IndexKernels, DoNothingWhereNothingIsThere) {
  Data none(DType::F32, 0);
  Data index(DType::I64, 0);
  Data x = Data::filled(DType::F32, 3, 1);
  cpu::run(Gather{none.view({0}), x.view({3}), index.view({0}), 0});
  cpu::run(Scatter{x.view({3}), none.view({0}), index.view({0}), 0, true});
  cpu::run(Triangle{none.view({0, 3}), none.view({0, 3}), 0, true});
  EXPECT_EQ(values_of(x), (Values{1, 1, 1}));
}

}  // namespace
}  // namespace coshard::kernels
