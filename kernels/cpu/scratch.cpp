#include "kernels/cpu/scratch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <new>
#include <vector>

namespace coshard::kernels::cpu {
namespace {

struct AlignedDelete {
  void operator()(float* data) const { ::operator delete (data, std::align_val_t{64}); }
};

struct Slot {
  std::unique_ptr<float, AlignedDelete> data;
  std::size_t count = 0;
};

std::int64_t rotary_rows(const Rope& args) {
  return (args.positions.data ? args.x.shape[0] : 1) * args.x.shape[1];
}

std::int64_t rotary_position(const Rope& args, std::int64_t row) {
  if (!args.positions.data) return args.first_position + row;
  const std::int64_t seq = args.x.shape[1];
  const auto& strides = args.positions.strides;
  const auto* positions = static_cast<const std::int64_t*>(args.positions.data);
  return args.first_position + positions[row / seq * strides[0] + row % seq * strides[1]];
}

template <class Real>
struct RotaryTable {
  std::int64_t half = 0;
  double theta = 0;
  const RopeTable* frequencies = nullptr;
  std::vector<std::int64_t> positions;  // of the rows
  std::vector<Real> values;

  bool fits(const Rope& args) const {
    const auto rows = static_cast<std::int64_t>(positions.size());
    if (rows != rotary_rows(args) || half != args.x.shape[3] / 2 || frequencies != args.table ||
        (frequencies == nullptr && theta != args.theta))
      return false;
    for (std::int64_t row = 0; row < rows; ++row)
      if (positions[row] != rotary_position(args, row)) return false;
    return true;
  }
  void fill(const Rope& args);
};

constexpr std::size_t kMaxRotaryTables = 8;

template <class Real>
void RotaryTable<Real>::fill(const Rope& args) {
  const std::int64_t rows = rotary_rows(args);
  half = args.x.shape[3] / 2;
  theta = args.theta;
  frequencies = args.table;
  positions.resize(rows);
  for (std::int64_t row = 0; row < rows; ++row) positions[row] = rotary_position(args, row);
  values.resize(rows * 2 * half);
  for (std::int64_t i = 0; i < half; ++i) {
    const double rate = std::pow(args.theta, -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t s = 0; s < rows; ++s) {
      const std::int64_t position = positions[s];
      Real& cosine = values[2 * s * half + i];
      Real& sine = values[(2 * s + 1) * half + i];
      if (args.table == nullptr) {
        const double angle = static_cast<double>(position) * rate;
        cosine = static_cast<Real>(std::cos(angle));
        sine = static_cast<Real>(std::sin(angle));
      } else {
        const double angle = static_cast<float>(position) * args.table->frequencies[i];
        cosine = static_cast<float>(std::cos(angle)) * args.table->scaling;
        sine = static_cast<float>(std::sin(angle)) * args.table->scaling;
      }
    }
  }
}

}  // namespace

float* scratch(int slot, std::size_t count) {
  thread_local std::array<Slot, 8> slots;
  Slot& own = slots[slot];
  if (own.count < count || own.data == nullptr) {
    const std::size_t room = std::max(count, own.count + own.count / 2);  // for what grows slowly
    own.data.reset();
    own.count = 0;
    own.data.reset(
        static_cast<float*>(::operator new ((room + 16) * sizeof(float), std::align_val_t{64})));
    own.count = room;
  }
  return own.data.get();
}

template <class Real>
const Real* rotary_table(const Rope& args) {
  thread_local std::array<RotaryTable<Real>, kMaxRotaryTables> tables;
  thread_local std::size_t oldest = 0;
  for (const RotaryTable<Real>& table : tables)
    if (table.fits(args)) return table.values.data();
  RotaryTable<Real>& table = tables[oldest++ % kMaxRotaryTables];
  table.fill(args);
  return table.values.data();
}
template const float* rotary_table(const Rope&);
template const double* rotary_table(const Rope&);

}  // namespace coshard::kernels::cpu
