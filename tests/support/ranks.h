#pragma once
// A world of ranks as threads for one test: runs `body` on each, joins them, rethrows the first
// error.
#include <functional>
#include <map>
#include <vector>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/runtime/launch/world.h>
#include "tests/support/device.h"

namespace coshard::testing {

inline void on_ranks(int ranks, const std::function<Task<void>(World&)>& body) {
  WorldOptions options = test_options(ranks);
  options.timeout = std::chrono::seconds(60);
  run_ranks(options, body);
}

// Counts the collectives that this rank issues.
class CountingObserver final : public Observer {
 public:
  explicit CountingObserver(World& world) : world_(world) { world.add_observer(this); }
  ~CountingObserver() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override { ++counts_[event.kind]; }
  int count(CollectiveKind kind) const {
    const auto found = counts_.find(kind);
    return found == counts_.end() ? 0 : found->second;
  }
  int total() const {
    int sum = 0;
    for (const auto& [kind, n] : counts_) sum += n;
    return sum;
  }
  void reset() { counts_.clear(); }

 private:
  World& world_;
  std::map<CollectiveKind, int> counts_;
};

// `scale` times 1, 2, 3, …: every element is distinct.
inline Tensor counting(World& world, const Shape& shape, DType dtype = DType::F64,
                       double scale = 1) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<double>(i + 1);
  return Tensor::from_values(world.device(), shape, dtype, values);
}

}  // namespace coshard::testing
