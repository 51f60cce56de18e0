#pragma once
// Counts the GEMMs that this rank computes between the issue of a collective and the end of its
// await. In virtual time (simulate), where computing takes no time, the program determines the
// count.
#include <cstdint>
#include <functional>
#include <set>

#include <gtest/gtest.h>

#include <coshard/runtime/launch/simulate.h>

namespace coshard::testing {

class HiddenProducts final : public Observer {
 public:
  explicit HiddenProducts(World& world) : world_(world) { world.add_observer(this); }
  ~HiddenProducts() override { world_.remove_observer(this); }
  void issued(const CommEvent& event, std::int64_t) override { under_way_.insert(event.id); }
  void ready(const CommEvent& event, std::int64_t, std::int64_t, std::int64_t) override {
    under_way_.erase(event.id);
  }
  void computing(std::string_view, ComputeClass what, const DescribeInputs&) override {
    if (what == ComputeClass::Gemm && !under_way_.empty()) ++count_;
  }
  int count() const { return count_; }

 private:
  World& world_;
  std::set<std::uint64_t> under_way_;
  int count_ = 0;
};

// Runs `body` on a link whose collectives take longer than any computation.
inline void on_slow_ranks(int ranks, const std::function<Task<void>(World&)>& body) {
  WorldOptions options;
  options.ranks = ranks;
  options.link = parse_link("30ms,100GB/s");
  for (std::uint64_t seed = 0; seed < 3; ++seed)
    EXPECT_NO_THROW(simulate(options, body, seed)) << "seed " << seed;
}

}  // namespace coshard::testing
