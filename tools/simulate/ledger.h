#pragma once
// Breaks a simulated step down by module and by kind of collective, and traces it in virtual time.
// Observers of the one rank, on its thread.
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/time_set.h>
#include "runtime/device/sim/virtual_device.h"

namespace coshard::tools {

// ns of a module including its submodules, forward and backward separately.
struct ModuleTimes {
  struct Part {
    std::int64_t products = 0, other = 0;  // kernels
    std::int64_t exposed = 0;              // the compute stream stood still for a collective
    std::int64_t total() const { return products + other + exposed; }
  };
  Part forward, backward;
};

struct CollectiveTimes {
  // ns; in flight: from issue to completion, where several at a time count once.
  std::int64_t count = 0, bytes = 0, in_flight = 0, exposed = 0;
};

class Ledger final : public Observer {
 public:
  explicit Ledger(VirtualDevice& device) : device_(device) {}
  void kernel(const KernelWork& work, std::int64_t begin, std::int64_t end);
  void issued(const CommEvent& event, std::int64_t now) override;
  void ready(const CommEvent& event, std::int64_t wait_begin, std::int64_t done,
             std::int64_t now) override;
  void stalled(const CommEvent& event, std::int64_t begin, std::int64_t end) override;
  void backward_enter() override { ++backward_; }
  void backward_exit() override { --backward_; }

  std::int64_t compute = 0, exposed = 0;  // ns
  std::int64_t in_flight = 0;             // any collective
  double flops = 0;                       // of GEMMs and attention
  // "model.layers.*.mlp"; "": none. All layers are counted together.
  std::map<std::string, ModuleTimes> modules;
  std::map<std::pair<std::string, std::string>, CollectiveTimes>
      collectives;  // "tp", "all_gather …"

 private:
  // Adds to the module at `path` and all modules around it.
  void add(const std::string& path, bool backward, std::int64_t ModuleTimes::Part::*what,
           std::int64_t ns);

  using Name = std::pair<std::string, std::string>;
  static Name name_of(const CommEvent& event);

  struct Issue {
    std::int64_t at;
    std::string module;
    bool backward;
  };
  VirtualDevice& device_;
  int backward_ = 0;
  std::unordered_map<std::uint64_t, Issue> issues_;
  // When the compute stream stood still, and when any collective or those of a name were in flight.
  TimeSet stood_still_, in_flight_;
  std::map<Name, TimeSet> stood_still_by_name_, in_flight_by_name_;
};

// "model.layers.17.mlp" -> "model.layers.*.mlp"
std::string pattern_of(const std::string& path);

class VirtualTrace final : public ChromeTrace {
 public:
  explicit VirtualTrace(VirtualDevice& device) : device_(device) {}
  void kernel(const KernelWork& work, std::int64_t begin, std::int64_t end);
  void computing(std::string_view op, ComputeClass, const DescribeInputs& inputs) override {
    op_ = op;
    inputs_ = inputs ? inputs() : "";
  }
  void computed(std::string_view, ComputeClass, std::int64_t, std::int64_t) override {
    op_.clear();
    inputs_.clear();
  }

 protected:
  std::int64_t now() const override { return device_.compute_stream().now; }

 private:
  VirtualDevice& device_;
  std::string op_, inputs_;  // of the running operator
};

}  // namespace coshard::tools
