// Attention on tensor cores.
#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {

using namespace testing;

// Heads between the sizes of tiles, of which rows may not begin at 16 bytes, and unequal values.
const Case kWidthCases[] = {
    {1, 1, 1, 40, 33, 72},  {1, 1, 1, 33, 40, 96, true},
    {1, 1, 1, 34, 35, 75},  {1, 2, 1, 35, 20, 160, true, Mask::None, 0, kSquare, true},
    {1, 1, 1, 40, 17, 192}, {1, 1, 1, 36, 40, 224, true, Mask::None, 40},
    {1, 1, 1, 33, 33, 256}, {1, 1, 1, 65, 18, 20, true, Mask::None, 256},
};

TEST(CudaAttention, OnTensorCoresTakesHeadsOfEveryWidth) {
  for (const DType dtype : kShort)
    for (const Case& c : kWidthCases) expect_matches(dtype, c);
}

TEST(CudaAttention, OnTensorCoresTakesRowsThatLieAnywhere) {
  const Case c{1, 2, 1, 35, 40, 64, true};
  const auto want = by_reference(DType::F16, c);
  Arrays a(DType::F16, c);
  std::map<const Data*, Data> shifted;  // by one element
  OnDevice on;
  const auto place = [&](Data& data) -> void* {
    Data& wide = shifted.try_emplace(&data, data.dtype(), data.count() + 1).first->second;
    for (std::int64_t i = 0; i < data.count(); ++i) wide.set(i + 1, data.get(i));
    return static_cast<std::byte*>(on.put(wide)) + size_of(data.dtype());
  };
  const auto args = arguments(c, a, place);
  on.run(args.first);
  on.run(args.second);
  const Data* outs[] = {&a.out, &a.lse, &a.dq, &a.dk, &a.dv};
  for (std::size_t i = 0; i < std::size(outs); ++i) {
    const Data wide = on.get(shifted.at(outs[i]));
    Data got(wide.dtype(), wide.count() - 1);
    for (std::int64_t e = 0; e < got.count(); ++e) got.set(e, wide.get(e + 1));
    expect_close(got, want[i], tolerance(DType::F16) * 5, "shifted " + std::to_string(i));
  }
}

}  // namespace
}  // namespace coshard::kernels
