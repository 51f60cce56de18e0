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
  const RopeTable* frequencies;
  std::vector<Real> values;

  bool fits(const Rope& args) const {
    return first == args.first_position && seq == args.x.shape[1] && half == args.x.shape[3] / 2 &&
           frequencies == args.table && (frequencies != nullptr || theta == args.theta);
  }
};

constexpr std::size_t kMaxRotaryTables = 8;

template <class Real>
std::vector<Real> rotary_values(const Rope& args) {
  const std::int64_t seq = args.x.shape[1];
  const std::int64_t half = args.x.shape[3] / 2;
  std::vector<Real> values(seq * 2 * half);
  for (std::int64_t i = 0; i < half; ++i) {
    const double rate = std::pow(args.theta, -static_cast<double>(i) / static_cast<double>(half));
    for (std::int64_t s = 0; s < seq; ++s) {
      const std::int64_t position = args.first_position + s;
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
const Real* rotary_table(const Rope& args) {
  thread_local std::deque<RotaryTable<Real>> tables;
  for (const RotaryTable<Real>& table : tables)
    if (table.fits(args)) return table.values.data();
  if (tables.size() == kMaxRotaryTables) tables.pop_front();
  tables.push_back({args.first_position, args.x.shape[1], args.x.shape[3] / 2, args.theta,
                    args.table, rotary_values<Real>(args)});
  return tables.back().values.data();
}
template const float* rotary_table(const Rope&);
template const double* rotary_table(const Rope&);

}  // namespace coshard::kernels::cpu
