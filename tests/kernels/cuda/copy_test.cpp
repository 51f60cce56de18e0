#include "tests/kernels/cuda/every_dtype.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

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

TEST(CudaCopy, CastsToAndFromFloat8) {
  for (const DType small : {DType::F8E4M3, DType::F8E5M2}) {
    for (const DType other : {DType::F32, DType::F64, DType::BF16, DType::F16, DType::I64,
                              DType::I32, DType::Bool, DType::F8E4M3, DType::F8E5M2}) {
      Data x = Data::integers(other, 3 * 5 * 7, 1, 0, 30);
      Data y(small, 3 * 5 * 7), want(small, 3 * 5 * 7), back(other, 3 * 5 * 7), again = back;
      OnDevice on;
      const View there = on.put(x.view({3, 5, 7}, {2, 0, 1}), x),
                 cast = on.put(y.view({3, 5, 7}), y);
      reference::run(Copy{want.view({3, 5, 7}), x.view({3, 5, 7}, {2, 0, 1})});
      reference::run(Copy{again.view({3, 5, 7}), want.view({3, 5, 7})});
      on.run(Copy{cast, there});
      on.run(Copy{on.put(back.view({3, 5, 7}), back), cast});
      EXPECT_EQ(on.get(y), want) << other << " to " << small;
      EXPECT_EQ(on.get(back), again) << small << " to " << other;
    }
  }
}

// Blocks of [rows, columns] in [rows, all] arrays, as all-to-all packs them, of every width.
TEST(CudaCopy, MovesRunsOfAnyLengthFromAndToAnyPlace) {
  for (const DType dtype : kAll) {
    for (const std::int64_t columns : {1, 2, 4, 6, 8, 24, 37}) {
      for (const std::int64_t skip : {0, 1, 2, 4, 8}) {
        for (const std::int64_t all : {48, 49}) {
          Data x = Data::integers(dtype, 7 * all, 1, 0, 99);
          const Data y = Data::filled(dtype, 7 * columns + 8, 1);
          Data want = y;
          View from = x.view({7, columns}), to = want.view({7, columns});
          from.strides[0] = all;
          const auto behind = [&](void* data) {
            return static_cast<std::byte*>(data) + skip * static_cast<std::int64_t>(size_of(dtype));
          };
          OnDevice on;
          View there = from, back = to;
          there.data = behind(on.put(x)), back.data = behind(on.put(y));
          from.data = behind(from.data), to.data = behind(to.data);
          on.run(Copy{back, there});
          reference::run(Copy{to, from});
          EXPECT_EQ(on.get(y), want) << dtype << " " << columns << " " << skip;
        }
      }
    }
  }
}

TEST(CudaCopy, TakesDenseArraysThatStartAnywhereAndConvertsThem) {
  for (const DType from : kAll) {
    for (const DType to : {from, DType::BF16, DType::F32}) {
      for (const std::int64_t count : {0, 1, 100, 3000}) {
        for (const std::int64_t skip : {0, 1, 3}) {
          for (const std::int64_t ahead : {0, 1, 2}) {
            const Data x = Data::integers(from, count + 3, 1, 0, 99);
            const Data y = Data::filled(to, count + 8, 1);
            Data want = y, source = x;
            const auto view = [count](Data& data, void* memory, std::int64_t at) {
              View v = data.view({count});
              v.data = static_cast<std::byte*>(memory) +
                       at * static_cast<std::int64_t>(size_of(data.dtype()));
              return v;
            };
            OnDevice on;
            on.run(Copy{view(want, on.put(y), skip + ahead), view(source, on.put(x), skip)});
            reference::run(
                Copy{view(want, want.ptr(), skip + ahead), view(source, source.ptr(), skip)});
            EXPECT_EQ(on.get(y), want) << from << " to " << to << " " << count;
          }
        }
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
