#pragma once
// coshard simulate: forecasts time, exposed communication and memory of a training step, for any
// GPUs.
#include <ostream>
#include <string>
#include <vector>

#include "tools/simulate/forecast.h"

namespace coshard::tools {

struct SimulateOptions {
  std::string model, mesh;
  std::string gpu = "h100";
  std::string link;  // "": the GPU's own
  int gpus_per_node = 8;
  std::int64_t batch = 0;  // 0: one sequence per rank of dp
  std::int64_t seq = 8192;
  std::string plan = "tp-sp", recompute = "none", overlap = "auto";
  int weave = 1;
  std::string trace;  // file; "": none
  bool json = false;
  bool search = false;
  int gpus = 0;  // of a search
};

inline std::vector<std::string> recompute_policies() { return {"none", "layers"}; }

// What the options name: presets, and files, each read once.
struct Inputs {
  nn::CausalLMConfig config;
  Figures gpu;
  GivenLinks links;
};
Inputs read_inputs(const SimulateOptions& options, const std::vector<MeshDim>& mesh);

// What is simulated, and its figures.
struct Question {
  LlamaRun run;
  Figures gpu;
  ProcessorModel processor;
};
Question question_of(const SimulateOptions& options);
// For one of several meshes.
Question question_of(const SimulateOptions& options, const Inputs& inputs);

// Prints a forecast, or the ten best of a search. Error{BadInput}: one line that names the value;
// a trace that would overwrite an input.
void simulate_training(const SimulateOptions& options, std::ostream& out);

}  // namespace coshard::tools
