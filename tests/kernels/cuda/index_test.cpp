#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/indexed.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

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
