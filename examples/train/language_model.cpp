#include "examples/train/language_model.h"

#include <algorithm>

#include <coshard/dtensor/calibration/calibrate.h>
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/styles/fully_shard.h>
#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/woven.h>

namespace coshard::train {
namespace {

constexpr std::int64_t kBytes = 256;  // classes: every byte value

nn::CausalLMConfig config_of(const Options& options) {
  nn::CausalLMConfig config;
  config.vocab_size = kBytes;
  config.hidden_size = options.dim;
  config.num_hidden_layers = options.layers;
  config.num_attention_heads = options.heads;
  config.intermediate_size = options.ffn;
  config.max_position_embeddings = options.seq;
  config.dtype = options.dtype();
  return config;
}

World& seeded(const Options& options, World& world) {
  manual_seed(options.seed);
  return world;
}

}  // namespace

LanguageModel::LanguageModel(const Options& options, World& world)
    : options_(options), world_(seeded(options, world)), model_(config_of(options), world) {
  for (const Tensor& parameter : model_.parameters()) parameter_count_ += parameter.numel();
}

Task<void> LanguageModel::parallelize() {
  if (world_.size() == 1) co_return;
  const bool dp = options_.data_parallel();
  DeviceMesh mesh = init_device_mesh(world_, {world_.size()}, {dp ? "dp" : "tp"});
  const ParallelPlan plan = model_.plan(options_.sequence_parallel());
  const ParallelizeOptions how{.overlap = parse_overlap(options_.overlap)};
  if (options_.measure_links) {
    CalibrateOptions measured;
    measured.dtypes = {options_.dtype()};
    Task<DeviceMesh> calibrating = calibrate(mesh, measured);
    mesh = co_await std::move(calibrating);
  }
  if (dp) {
    replicas_ = mesh;
    if (options_.sharded()) co_return shard(mesh, how.overlap);
    gradients_.emplace(model_.parameters(), mesh, 0, DataParallelOptions{.overlap = how.overlap});
    co_return;
  }
  co_await parallelize_module(model_, mesh, plan, how);
}

void LanguageModel::shard(const DeviceMesh& mesh, Overlap overlap) {
  const FullyShardOptions how{.overlap = overlap};
  for (const auto& layer : model_.blocks()) fully_shard(*layer, mesh, how);
  fully_shard(model_, mesh, how);
}

Batch LanguageModel::part_of(Batch batch) const {
  if (!replicas_.defined()) return batch;
  const auto part = static_cast<std::ptrdiff_t>(batch.tokens.size()) / world_.size();
  const auto cut = [&](std::vector<double>& values) {
    const auto begin = values.begin() + part * world_.rank();
    values = std::vector<double>(begin, begin + part);
  };
  cut(batch.tokens);
  cut(batch.targets);
  return batch;
}

Tensor LanguageModel::mean_over_replicas(const Tensor& loss) const {
  if (!replicas_.defined()) return loss.detach();
  const DTensor term = from_local(loss.detach(), replicas_, Partial(Reduce::Avg));
  return term.redistribute(Replicate()).tensor();
}

Task<Tensor> LanguageModel::logits(std::vector<double> tokens, std::int64_t rows, int parts) {
  const auto length = static_cast<std::int64_t>(tokens.size()) / rows;
  Tensor ids = Tensor::from_values(world_.device(), Shape{rows, length}, DType::I64, tokens);
  Task<Tensor> forward = woven(model_, parts).forward(ids);
  co_return co_await std::move(forward);
}

Task<Tensor> LanguageModel::loss(Batch batch) {
  const auto count = static_cast<std::int64_t>(batch.targets.size());
  Tensor targets = Tensor::from_values(world_.device(), Shape{count}, DType::I64, batch.targets);
  const std::int64_t rows = count / options_.seq;
  const auto parts = static_cast<int>(std::min<std::int64_t>(options_.weave, rows));
  Task<Tensor> forward = logits(std::move(batch.tokens), rows, parts);
  Tensor scores = co_await std::move(forward);
  scores = view(scores, Shape{count, kBytes});
  if (!scores.is_distributed()) co_return cross_entropy(scores, targets);
  Task<Tensor> parallel = loss_parallel_cross_entropy(scores, targets);
  co_return co_await std::move(parallel);
}

Task<std::vector<double>> LanguageModel::next_byte_logits(std::string context) {
  const auto seq = static_cast<std::size_t>(options_.seq);
  if (context.size() > seq) context.erase(0, context.size() - seq);
  const auto last = static_cast<std::int64_t>(context.size()) - 1;
  // Padded to few different lengths; attention is causal, so padding does not affect the last byte.
  constexpr std::size_t kStep = 32;
  const std::size_t length = std::min(seq, (context.size() + kStep - 1) / kStep * kStep);
  std::vector<double> tokens(length, 0.0);
  for (std::size_t i = 0; i < context.size(); ++i)
    tokens[i] = static_cast<unsigned char>(context[i]);
  Task<Tensor> forward = logits(std::move(tokens), 1);
  const Tensor scores = co_await std::move(forward);
  Tensor row = slice(scores, 1, last, last + 1);
  if (row.is_distributed()) row = full_tensor(row);
  co_return row.to_vector();
}

}  // namespace coshard::train
