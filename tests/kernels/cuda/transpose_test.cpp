// Copies that transpose.
#include "tests/kernels/cuda/every_dtype.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(CudaCopy, TransposesMatricesOfAnySize) {
  for (const DType dtype : kAll) {
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{2, 33, 70}, {1, 64, 32}, {3, 16, 17}, {40, 3, 20}}) {
      const std::int64_t count = shape[0] * shape[1] * shape[2];
      for (const std::vector<int>& order : {std::vector<int>{0, 2, 1}, {2, 0, 1}, {2, 1, 0}}) {
        Data x = Data::integers(dtype, count, 1, 0, 99);
        const Data y(dtype, count);
        Data want = y;
        OnDevice on;
        on.run(Copy{on.put(want.view(shape), y), on.put(x.view(shape, order), x)});
        reference::run(Copy{want.view(shape), x.view(shape, order)});
        EXPECT_EQ(on.get(y), want) << dtype << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
