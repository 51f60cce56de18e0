// Scattering along a dimension.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/indexed.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

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

}  // namespace
}  // namespace coshard::kernels
