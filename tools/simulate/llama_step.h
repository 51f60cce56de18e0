#pragma once
// A training step of a Llama as a user writes it: the program that `coshard simulate` runs. Rank's
// thread.
#include <functional>
#include <string>
#include <vector>

#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/styles/nn/llama.h>
#include <coshard/styles/parallelize.h>
#include "tools/simulate/links.h"

namespace coshard::tools {

struct LlamaRun {
  nn::LlamaConfig config;
  std::vector<MeshDim> mesh;
  MeshLinks links;
  std::int64_t batch = 1, seq = 1;  // batch: of the whole mesh, a multiple of dp
  bool sequence_parallel = true;
  bool recompute = false;  // each layer
  Overlap overlap = Overlap::Auto;
  int weave = 1;  // parts of a rank's sequences that take turns
};

// Called between the parts of a step.
enum class Phase : std::uint8_t { Begin, Forward, Backward, Optimizer };
using PhaseDone = std::function<void(Phase done)>;

// For DeviceMesh::with_calibration: bf16 products take what the device takes for them.
std::shared_ptr<const Calibration> products_of(const ProcessorModel& processor);
// Error{BadInput}: a model that does not divide by tp, a batch that does not by dp, a sequence that
// does not by tp.
void check(const LlamaRun& run);

class LlamaTraining {
 public:
  // `run` outlives it.
  LlamaTraining(World& world, const LlamaRun& run);
  Task<void> prepare();
  // zero_grad, forward, loss, backward with the gradients' mean over dp, AdamW, and the loss on the host,
  // which is a stub.
  Task<void> step(PhaseDone done);

  std::vector<Tensor> parameters() { return model_.parameters(); }

 private:
  Task<Tensor> loss();

  World& world_;
  const LlamaRun& run_;
  DeviceMesh mesh_;
  nn::LlamaForCausalLM model_;
  std::unique_ptr<DataParallel> gradients_;  // null: dp is 1
  std::unique_ptr<AdamW> optimizer_;
  Tensor tokens_, targets_;
};

}  // namespace coshard::tools
