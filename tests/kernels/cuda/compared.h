#pragma once
// One call on a CUDA device against the same call of the reference.
#include <map>
#include <string>

#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels::testing {

const std::vector<DType> kLineDTypes = {DType::F32, DType::F64, DType::BF16, DType::F16,
                                        DType::I64, DType::I32, DType::Bool};

// [outer, extent, inner]
struct LinesShape {
  std::int64_t outer, extent, inner;
  std::int64_t count() const { return outer * extent * inner; }
  std::int64_t lines() const { return outer * inner; }
  std::string text() const {
    return " [" + std::to_string(outer) + "," + std::to_string(extent) + "," +
           std::to_string(inner) + "]";
  }
};
// Lines for each kind of team: none, short, of a warp, of a block, too long for registers, side by
// side.
const std::vector<LinesShape> kLineShapes = {
    {0, 4, 4},   {2, 0, 3},    {3, 1, 1},    {70, 3, 1}, {5, 31, 1},  {2, 32, 1},   {3, 33, 1},
    {2, 257, 1}, {1, 1000, 1}, {1, 5000, 1}, {3, 31, 5}, {1, 257, 5}, {1, 1000, 33}};

// Runs make(where), where(Data) being the address of its elements, on a device and by the
// reference, and compares what they wrote to `outs` (which they find as it is), with `loosened`
// times the usual tolerance; 0: bit by bit.
template <class Make>
void expect_as_reference(const std::string& what, const std::vector<const Data*>& outs, Make&& make,
                         double loosened = 1) {
  std::map<const Data*, Data> want;
  for (const Data* out : outs) want.emplace(out, *out);
  reference::run(make([&](const Data& data) {
    const auto found = want.find(&data);
    return found == want.end() ? const_cast<void*>(data.ptr()) : found->second.ptr();
  }));
  OnDevice on;
  on.run(make([&](const Data& data) { return on.put(data); }));
  for (const Data* out : outs) {
    const Data got = on.get(*out);
    if (loosened == 0) {
      ASSERT_EQ(got, want.at(out)) << what << " " << out->dtype();
    } else {
      expect_close(got, want.at(out), loosened * tolerance(out->dtype()), what);
    }
  }
}

// NaN and infinities here and there.
inline void spoil(Data& data, std::int64_t every) {
  const double inf = std::numeric_limits<double>::infinity();
  const double values[] = {std::nan(""), inf, -inf};
  for (std::int64_t i = every / 2, n = 0; i < data.count(); i += every, ++n)
    data.set(i, values[n % 3]);
}

}  // namespace coshard::kernels::testing
