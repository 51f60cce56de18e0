#include <coshard/dtensor/ops/rotary_table.h>

#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include <coshard/runtime/error.h>
#include "kernels/args/nn.h"

namespace coshard {
namespace {

const kernels::RopeTable* kept_table(std::vector<float> frequencies, float scaling) {
  static std::mutex mutex;
  static auto* all = new std::map<std::pair<std::vector<float>, float>, kernels::RopeTable>();
  const std::scoped_lock lock(mutex);
  const auto [at, added] = all->try_emplace({std::move(frequencies), scaling});
  if (added) at->second = {at->first.first, scaling};
  return &at->second;
}

}  // namespace

RotaryTable::RotaryTable(std::vector<float> frequencies, double scaling) {
  CS_REQUIRE(!frequencies.empty() && std::isfinite(scaling), "RotaryTable: ", frequencies.size(),
             " frequencies with scaling ", scaling);
  for (const float frequency : frequencies)
    CS_REQUIRE(std::isfinite(frequency), "RotaryTable: frequency ", frequency, " is not finite");
  table_ = kept_table(std::move(frequencies), static_cast<float>(scaling));
}

std::span<const float> RotaryTable::frequencies() const { return table_->frequencies; }
double RotaryTable::scaling() const { return table_->scaling; }

}  // namespace coshard
