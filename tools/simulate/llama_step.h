#pragma once
// A Llama's training step as a user would write it: the program of `coshard simulate`. Rank's
// thread.
#include <functional>
#include <string>
#include <vector>

#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/nn/causal_lm.h>
#include <coshard/styles/parallelize.h>
#include "tools/simulate/links.h"

namespace coshard::tools {

struct LlamaRun {
  nn::CausalLMConfig config;
  std::vector<MeshDim> mesh;
  MeshLinks links;
  std::int64_t batch = 1, seq = 1;  // batch: of the whole mesh, a multiple of dp
  bool sequence_parallel = true;
  bool recompute = false;  // each layer
  Overlap overlap = Overlap::Auto;
  int weave = 1;  // parts into which a rank's sequences are woven
};

// Called between the parts of a step.
enum class Phase : std::uint8_t { Begin, Forward, Backward, Optimizer };
using PhaseDone = std::function<void(Phase done)>;

// For DeviceMesh::with_calibration: bf16 GEMMs take the time that the device takes for them.
std::shared_ptr<const Calibration> products_of(const ProcessorModel& processor);
// Error{BadInput}: the model or the sequence is not divisible by tp, or the batch by dp; more than
// 1e9 tokens of a rank.
void check(const LlamaRun& run);

class LlamaTraining {
 public:
  // `run` must outlive it.
  LlamaTraining(World& world, const LlamaRun& run);
  Task<void> prepare();
  // zero_grad, forward, loss, backward with the gradients' mean over dp, AdamW, and reading the
  // loss on the host, a stub.
  Task<void> step(PhaseDone done);

  std::vector<Tensor> parameters() { return model_.parameters(); }

 private:
  Task<Tensor> loss();

  World& world_;
  const LlamaRun& run_;
  DeviceMesh mesh_;
  nn::CausalLM model_;
  std::unique_ptr<DataParallel> gradients_;  // null: dp is 1
  std::unique_ptr<AdamW> optimizer_;
  Tensor tokens_, targets_;
};

}  // namespace coshard::tools
