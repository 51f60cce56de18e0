#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {
using namespace testing;

const std::vector<DType> kAll = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                 DType::I64, DType::I32, DType::Bool};

TEST(CudaCopy, ConvertsBetweenAllDTypesAndStrides) {
  for (const DType from : kAll) {
    for (const DType to : kAll) {
      for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, {2, 0, 1}, {1, 2, 0}}) {
        Data x = is_floating(from) ? Data::normal(from, 3 * 5 * 7, 1, 3)
                                   : Data::integers(from, 3 * 5 * 7, 1, 0, 9);
        Data y(to, 3 * 5 * 7), want(to, 3 * 5 * 7);
        const View source = x.view({3, 5, 7}, order);
        OnDevice on;
        reference::run(Copy{want.view({3, 5, 7}), source});
        on.run(Copy{on.put(y.view({3, 5, 7}), y), on.put(source, x)});
        EXPECT_EQ(on.get(y), want) << from << " to " << to;
      }
    }
  }
}

TEST(CudaFill, WritesEveryElement) {
  for (const DType dtype : kAll) {
    for (const std::int64_t count : kCounts) {
      const Data data(dtype, count);
      OnDevice on;
      on.run(Fill{on.put(data), dtype, count, 1.5});
      Data want(dtype, count);
      reference::run(Fill{want.ptr(), dtype, count, 1.5});
      EXPECT_EQ(on.get(data), want) << dtype << " " << count;
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
