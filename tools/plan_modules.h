#pragma once
// coshard plan explain --module: the gate's choice and forecast for each linear layer of a
// transformer; neither model nor ranks need to exist. Pure, except for the file that it reads.
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace coshard::tools {

struct PlanModulesOptions {
  std::string mesh, dtype = "f32", plan = "tp", device = "cpu";
  std::string communicator = "local";  // or "nccl", which gathers shards in rounds
  std::vector<std::string> links;      // "20us,1GB/s", "tp=20us,1GB/s"
  std::string calibration;             // a file of calibrate(); empty: constants
  std::string module;                  // "layers.*.mlp.w2"; "layers.*": all below; empty: all
  int threads = 1;                     // of a rank on a CPU
  std::string machine;                 // which of --device and --threads were given
  int layers = 4, dim = 256, heads = 8, ffn = 688, seq = 256, batch = 8, vocab = 256;
  bool json = false;
};

// Error{BadInput}: options that cannot be parsed; a mesh of several dimensions; a plan that does
// not fit; a pattern that matches no linear layer; times that no integer of ns holds.
void explain_modules(const PlanModulesOptions& options, std::ostream& out);

}  // namespace coshard::tools
