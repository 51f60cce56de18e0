#include "kernels/cpu/scratch.h"

#include <array>
#include <cmath>
#include <deque>
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

template <class Real>
struct RotaryTable {
  std::int64_t first, seq, half;
  double theta;
  std::vector<Real> values;
};

constexpr std::size_t kMaxRotaryTables = 8;

template <class Real>
std::vector<Real> rotary_values(std::int64_t first, std::int64_t seq, std::int64_t half,
                                double theta) {
  std::vector<Real> values(seq * 2 * half);
  for (std::int64_t i = 0; i < half; ++i) {
    const double rate = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t s = 0; s < seq; ++s) {
      const double angle = static_cast<double>(first + s) * rate;
      values[2 * s * half + i] = static_cast<Real>(std::cos(angle));
      values[(2 * s + 1) * half + i] = static_cast<Real>(std::sin(angle));
    }
  }
  return values;
}

}  // namespace

float* scratch(int slot, std::size_t count) {
  thread_local std::array<Slot, 8> slots;
  Slot& own = slots[slot];
  if (own.count < count || own.data == nullptr) {
    own.data.reset();
    own.count = 0;
    own.data.reset(
        static_cast<float*>(::operator new ((count + 16) * sizeof(float), std::align_val_t{64})));
    own.count = count;
  }
  return own.data.get();
}

template <class Real>
const Real* rotary_table(std::int64_t first, std::int64_t seq, std::int64_t half, double theta) {
  thread_local std::deque<RotaryTable<Real>> tables;
  for (const RotaryTable<Real>& table : tables) {
    if (table.first == first && table.seq == seq && table.half == half && table.theta == theta) {
      return table.values.data();
    }
  }
  if (tables.size() == kMaxRotaryTables) tables.pop_front();
  tables.push_back({first, seq, half, theta, rotary_values<Real>(first, seq, half, theta)});
  return tables.back().values.data();
}
template const float* rotary_table(std::int64_t, std::int64_t, std::int64_t, double);
template const double* rotary_table(std::int64_t, std::int64_t, std::int64_t, double);

}  // namespace coshard::kernels::cpu
