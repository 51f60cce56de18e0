#pragma once
// The model of one rank, sharded over all ranks by its plan, or a replica (dp; with fsdp, sharded
// between the steps; one rank: plain tensors, no plan). Belongs to the rank's thread.
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/styles/nn/causal_lm.h>
#include "examples/train/options.h"
#include "examples/train/text.h"

namespace coshard::train {

class LanguageModel {
 public:
  // Draws the weights; the same for any number of ranks.
  LanguageModel(const Options& options, World& world);
  // Shards the weights, or has backward average gradients over the replicas. To be called first, on
  // all ranks.
  Task<void> parallelize();

  // What this rank trains on: the batch or, for replicas, its part of the sequences.
  Batch part_of(Batch batch) const;
  // The mean of a loss over the replicas: issued, and in flight. The same on every rank.
  Tensor mean_over_replicas(const Tensor& loss) const;

  // Mean cross-entropy in nats over the targets that are not negative; a scalar, the same on every
  // rank.
  Task<Tensor> loss(Batch batch);
  // Logits of the 256 bytes that may follow `context`, of which the model sees at most the last
  // --seq bytes.
  Task<std::vector<double>> next_byte_logits(std::string context);

  nn::CausalLM& module() { return model_; }
  std::int64_t parameter_count() const { return parameter_count_; }  // before sharding

 private:
  void shard(const DeviceMesh& mesh, Overlap overlap);
  Task<Tensor> logits(std::vector<double> tokens, std::int64_t rows, int parts = 1);

  const Options& options_;
  World& world_;
  nn::CausalLM model_;
  std::int64_t parameter_count_ = 0;
  DeviceMesh replicas_;  // defined for dp and fsdp
  std::optional<DataParallel> gradients_;
};

}  // namespace coshard::train
