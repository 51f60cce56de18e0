#pragma once
// The model of one rank, sharded over all ranks by its plan (one rank: plain tensors, no plan). Belongs
// to the rank's thread.
#include <string>
#include <vector>

#include <coshard/dtensor/device_mesh.h>
#include <coshard/styles/nn/transformer.h>
#include "examples/train/options.h"
#include "examples/train/text.h"

namespace coshard::train {

class LanguageModel {
 public:
  // Draws the weights; the same for any number of ranks.
  LanguageModel(const Options& options, World& world);
  // Cuts the weights. Before anything else, on all ranks.
  Task<void> parallelize();

  // Mean cross-entropy in nats over the targets that are not negative; a scalar, the same on every
  // rank.
  Task<Tensor> loss(Batch batch);
  // Scores of the 256 bytes that may follow `context`, at most --seq bytes of its end being seen.
  Task<std::vector<double>> next_byte_logits(std::string context);

  nn::Transformer& module() { return model_; }
  std::int64_t parameter_count() const { return parameter_count_; }  // before cutting

 private:
  Task<Tensor> logits(std::vector<double> tokens, std::int64_t rows);

  const Options& options_;
  World& world_;
  nn::Transformer model_;
  std::int64_t parameter_count_ = 0;
};

}  // namespace coshard::train
