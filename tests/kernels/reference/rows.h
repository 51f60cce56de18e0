#pragma once
// Rows of numbers for tests of the reference.
#include <limits>

#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::testing {

using Row = std::vector<double>;

inline const double kScanInf = std::numeric_limits<double>::infinity();

inline const double kScanNan = std::numeric_limits<double>::quiet_NaN();

inline Data scan_data(const Row& values, DType dtype = DType::F64) {
  Data data(dtype, static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) data.set(static_cast<std::int64_t>(i), values[i]);
  return data;
}

inline Row row_of(const Data& data) {
  Row row;
  for (std::int64_t i = 0; i < data.count(); ++i) row.push_back(data.get(i));
  return row;
}

struct Both {
  Row values, indices;
};

}  // namespace coshard::kernels::testing
