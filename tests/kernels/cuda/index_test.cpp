#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {
using namespace testing;

const std::vector<DType> kIndexed = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                     DType::I64, DType::I32, DType::Bool};
using Shape = std::vector<std::int64_t>;

std::int64_t product(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

TEST(CudaGather, MatchesTheReferenceAlongEveryDimensionInEveryOrderOfMemory) {
  for (const DType dtype : kIndexed) {
    for (const DType index_dtype : {DType::I64, DType::I32}) {
      for (int dim = 0; dim < 3; ++dim) {
        Shape shape = {5, 6, 7}, indexed = shape;
        indexed[static_cast<std::size_t>(dim)] = 11;
        Data x = Data::integers(dtype, product(shape), 1, 0, 99);
        Data index = Data::integers(index_dtype, product(indexed), 2, 0, 4);
        const Data out(dtype, product(indexed));
        Data want = out;
        OnDevice on;
        on.run(Gather{on.put(want.view(indexed), out), on.put(x.view(shape, {2, 0, 1}), x),
                      on.put(index.view(indexed, {1, 2, 0}), index), dim});
        reference::run(Gather{want.view(indexed), x.view(shape, {2, 0, 1}),
                              index.view(indexed, {1, 2, 0}), dim});
        EXPECT_EQ(on.get(out), want) << dtype << " along " << dim;
      }
    }
  }
}

// Along the first and the last dimension of [`lines`, `extent`], from src or from a number.
void compare_scatter(DType dtype, std::int64_t lines, std::int64_t extent, bool add,
                     unsigned seed) {
  for (int dim = 0; dim < 2; ++dim) {
    for (const bool number : {false, true}) {
      Shape indexed = {lines, extent}, shape = {lines + 1, 9};
      if (dim == 0) std::swap(indexed[0], indexed[1]), std::swap(shape[0], shape[1]);
      const bool small = dtype == DType::BF16;
      Data out = Data::integers(dtype, product(shape), seed, 0, small ? 1 : 99);
      Data src = Data::integers(dtype, product(indexed), seed + 1, -9, small ? 9 : 99);
      Data index =
          Data::integers(dim == 0 ? DType::I64 : DType::I32, product(indexed), seed + 2, 0, 8);
      Data want = out;
      OnDevice on;
      const View from = number ? View{} : src.view(indexed, {1, 0});
      on.run(Scatter{on.put(out.view(shape), out), number ? View{} : on.put(from, src),
                     on.put(index.view(indexed), index), dim, add, 3});
      reference::run(Scatter{want.view(shape), from, index.view(indexed), dim, add, 3});
      EXPECT_EQ(on.get(out), want) << dtype << " " << lines << "x" << extent << " along " << dim
                                   << (add ? " added" : " set") << (number ? " a number" : "");
    }
  }
}

TEST(CudaScatter, SetsTheLastOfEqualIndicesAndAddsAllOfThem) {
  for (const DType dtype : kIndexed)
    for (const bool add : {false, true})
      for (const std::int64_t extent : {1, 20, 65, 600})
        for (const std::int64_t lines : {1, 5}) compare_scatter(dtype, lines, extent, add, 7);
}

TEST(CudaScatter, AddsFloatsInTheOrderOfTheirLine) {
  for (const std::int64_t extent : {40, 1000}) {
    Data src = Data::normal(DType::F32, extent, 1, 100);
    Data index = Data::integers(DType::I64, extent, 2, 0, 3);
    const Data out = Data::normal(DType::F32, 4, 3);
    Data target = out;
    float want[4];
    for (int i = 0; i < 4; ++i) want[i] = static_cast<float>(out.get(i));
    for (std::int64_t i = 0; i < extent; ++i)
      want[static_cast<int>(index.get(i))] += static_cast<float>(src.get(i));
    OnDevice on;
    on.run(Scatter{on.put(target.view({4}), out), on.put(src.view({extent}), src),
                   on.put(index.view({extent}), index), 0, true});
    for (int i = 0; i < 4; ++i) EXPECT_EQ(on.get(out).get(i), want[i]) << extent << " to " << i;
  }
}

TEST(CudaScatter, CutsVeryLongLinesIntoChunks) {
  for (const DType dtype : kIndexed)
    for (const bool add : {false, true})
      for (const std::int64_t lines : {1, 3}) compare_scatter(dtype, lines, 9001, add, 7);
}

// Whatever order the blocks run in; places that nothing goes to keep their bits.
TEST(CudaScatter, AddsFloatsOfVeryLongLinesAlikeInEveryRun) {
  constexpr std::int64_t kSources = 20'000;
  Data src = Data::normal(DType::F32, kSources, 1, 100);
  Data index = Data::integers(DType::I64, kSources, 2, 0, 300);
  Data out = Data::normal(DType::F32, 400, 3), want = out;
  out.set(399, -0.0);
  want.set(399, -0.0);
  reference::run(Scatter{want.view({400}), src.view({kSources}), index.view({kSources}), 0, true});
  Data first = out;
  for (int run = 0; run < 5; ++run) {
    OnDevice on;
    on.run(Scatter{on.put(Data(out).view({400}), out), on.put(src.view({kSources}), src),
                   on.put(index.view({kSources}), index), 0, true});
    const Data got = on.get(out);
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
  expect_close(first, want, 1e-4, "scatter");
  EXPECT_TRUE(std::signbit(first.get(399)));
}

TEST(CudaScatter, RoundsASumInBf16Once) {
  Data index(DType::I64, 256);
  Data src = Data::filled(DType::BF16, 256, 0.25), out = Data::filled(DType::BF16, 1, 256);
  OnDevice on;
  on.run(Scatter{on.put(out.view({1}), out), on.put(src.view({256}), src),
                 on.put(index.view({256}), index), 0, true});
  EXPECT_EQ(on.get(out).get(0), 320);
}

TEST(CudaIndex, LeavesAnIndexOutsideTheDimensionForTheHost) {
  for (const double outside : {3.0, -1.0}) {
    for (const std::int64_t count : {2, 300}) {
      Data index = Data::filled(DType::I64, count, 1);
      index.set(count - 1, outside);
      Data x = Data::filled(DType::F32, 3, 5), src = Data::filled(DType::F32, count, 1);
      const Data out = Data::filled(DType::F32, count, 7);
      OnDevice on;
      const auto refused = [&on](const char* what) {
        try {
          on.device().synchronize();
          ADD_FAILURE() << what << ": no error";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::BadInput);
          EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
          EXPECT_NE(std::string(error.what()).find("a dimension of 3"), std::string::npos);
        }
      };
      const View of_out = on.put(Data(out).view({count}), out), of_x = on.put(x.view({3}), x);
      const View of_index = on.put(index.view({count}), index);
      on.run(Gather{of_out, of_x, of_index, 0});
      refused("gather: index");
      EXPECT_EQ(on.get(out).get(0), 5);
      EXPECT_EQ(on.get(out).get(count - 1), 0);
      on.run(Scatter{of_x, on.put(src.view({count}), src), of_index, 0, false});
      refused("scatter: index");
      const double set[] = {5, 1, 5};
      for (int i = 0; i < 3; ++i) EXPECT_EQ(on.get(x).get(i), set[i]);
      on.device().synchronize();  // said once
    }
  }
}

TEST(CudaTriangle, KeepsOneSideOfTheDiagonalOfEveryMatrix) {
  for (const DType dtype : kIndexed) {
    for (const Shape& shape : {Shape{3, 5, 7}, {2, 16, 32}, {4, 1}, {33, 17}}) {
      for (const std::int64_t diagonal : {-3, 0, 2}) {
        for (const bool upper : {false, true}) {
          Data x = Data::integers(dtype, product(shape), 1, 1, 99);
          const Data y(dtype, product(shape));
          Data want = y;
          std::vector<int> order;
          for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) order.push_back(d);
          for (const View& from : {x.view(shape), x.view(shape, order)}) {
            OnDevice on;
            on.run(Triangle{on.put(want.view(shape), y), on.put(from, x), diagonal, upper});
            reference::run(Triangle{want.view(shape), from, diagonal, upper});
            EXPECT_EQ(on.get(y), want) << dtype << " " << diagonal << " " << upper;
          }
        }
      }
    }
  }
}

TEST(CudaIndex, DoesNothingWhereNothingIsThere) {
  Data none(DType::F32, 0), index(DType::I64, 0), x = Data::filled(DType::F32, 3, 1);
  OnDevice on;
  const View nothing = on.put(none.view({0}), none), of_x = on.put(x.view({3}), x);
  const View at = on.put(index.view({0}), index), plane = on.put(none.view({0, 3}), none);
  on.run(Gather{nothing, of_x, at, 0});
  on.run(Scatter{of_x, nothing, at, 0, true});
  on.run(Triangle{plane, plane, 0, true});
  EXPECT_EQ(on.get(x), x);
}

}  // namespace
}  // namespace coshard::kernels
