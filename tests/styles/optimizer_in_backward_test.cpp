// An optimizer's step in a hook of each parameter, during backward: the parameters are those of one
// rank that does the same.
#include <coshard/styles/fully_shard.h>
#include "tests/styles/support.h"

namespace coshard::optimizer_in_backward {
namespace {

using testing::expect_close;
using testing::integers;
using testing::line;
using testing::on_cpu;
using testing::on_ranks;
using testing::part;
using testing::twins;

struct Kind {
  int parts = 1;  // woven
  bool recomputes = false;
  Overlap overlap = Overlap::Off;
};

// Its gradients do not outlive backward.
void step_at_once(const Tensor& leaf) {
  const NoGradGuard no_grad;
  Tensor gradient = leaf.grad();
  if (gradient.is_distributed()) gradient = gradient.redistribute(leaf.layout()).tensor();
  sub_(leaf, gradient * 0.3);
  leaf.set_grad({});
}

nn::TransformerConfig small_transformer() {
  nn::TransformerConfig config = testing::tiny_transformer();
  config.init_std = 0.3;
  config.dtype = DType::F64;
  return config;
}

Task<void> train_one_step(nn::Transformer& model, Tensor tokens, Tensor targets, int parts) {
  Task<Tensor> forward = parts > 1 ? woven(model, parts).forward(tokens) : model.forward(tokens);
  const Tensor logits = co_await std::move(forward);
  const Tensor loss = co_await loss_parallel_cross_entropy(logits, targets);
  co_await backward(loss);
}

using Cut = Task<void> (*)(nn::Transformer& model, DeviceMesh mesh, Overlap overlap);
enum class Data { Same, OwnRows };

Task<void> expect_as_on_one_rank(World& world, Cut cut, Data data, Kind kind) {
  auto [plain, model] = twins<nn::Transformer>(small_transformer(), world);
  co_await cut(*model, line(world), kind.overlap);
  for (std::size_t i = 0; i < model->layers.size(); ++i)
    model->layers[i].set_recompute(kind.recomputes);
  for (nn::Transformer* each : {plain.get(), model.get()})
    for (const Tensor& p : each->parameters()) register_post_accumulate_grad_hook(p, step_at_once);
  for (std::int64_t step = 0; step < 2; ++step) {
    const Tensor tokens = integers(world, Shape{4, 8}, 10 + step);
    const Tensor targets = integers(world, Shape{4, 8}, 12 - step);
    co_await train_one_step(*plain, tokens, targets, 1);
    if (data == Data::Same)
      co_await train_one_step(*model, tokens, targets, kind.parts);
    else
      co_await train_one_step(*model, part(world, tokens, 0), part(world, targets, 0), kind.parts);
    for (const NamedParameter& p : model->named_parameters()) {
      SCOPED_TRACE(str_cat(p.name, " after step ", step, ", ", kind.parts, " parts, overlap ",
                           kind.overlap, kind.recomputes ? ", recomputed" : ""));
      EXPECT_FALSE(p.slot->grad().defined());
      expect_close(*p.slot, plain->parameter(p.name));
    }
  }
}

void expect_as_on_one_rank(Cut cut, Data data) {
  on_ranks(2, [=](World& world) -> Task<void> {
    for (const int parts : {1, 2})
      for (const bool recomputes : {false, true})
        for (const Overlap overlap : {Overlap::Off, Overlap::Always}) {
          if (!on_cpu() && overlap == Overlap::Off) continue;  // seconds on the fake driver
          const Kind kind{parts, recomputes, overlap};
          co_await expect_as_on_one_rank(world, cut, data, kind);
        }
  });
}

Task<void> cut_by_plan(nn::Transformer& model, DeviceMesh mesh, Overlap overlap,
                       bool sequence_parallel) {
  const ParallelizeOptions options{.overlap = overlap};
  const ParallelPlan plan = nn::transformer_plan(sequence_parallel);
  Task<void> cutting = parallelize_module(model, mesh, plan, options);
  co_await std::move(cutting);
}
Task<void> cut_for_tensor_parallelism(nn::Transformer& model, DeviceMesh mesh, Overlap overlap) {
  return cut_by_plan(model, mesh, overlap, false);
}
Task<void> cut_for_sequence_parallelism(nn::Transformer& model, DeviceMesh mesh, Overlap overlap) {
  return cut_by_plan(model, mesh, overlap, true);
}
void shard(nn::Transformer& model, const DeviceMesh& mesh, const FullyShardOptions& options) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) fully_shard(model.layers[i], mesh, options);
  fully_shard(model, mesh, options);
}
Task<void> cut_into_shards(nn::Transformer& model, DeviceMesh mesh, Overlap overlap) {
  shard(model, mesh, {.overlap = overlap});
  co_return;
}
Task<void> cut_into_shards_that_stay(nn::Transformer& model, DeviceMesh mesh, Overlap overlap) {
  shard(model, mesh, {.reshard_after_forward = false, .overlap = overlap});
  co_return;
}

TEST(OptimizerInBackward, OfTensorParallelLayersStepsAsOnOneRank) {
  expect_as_on_one_rank(cut_for_tensor_parallelism, Data::Same);
}
TEST(OptimizerInBackward, OfSequenceParallelLayersStepsAsOnOneRank) {
  expect_as_on_one_rank(cut_for_sequence_parallelism, Data::Same);
}
TEST(OptimizerInBackward, OfShardsStepsAsOnOneRank) {
  expect_as_on_one_rank(cut_into_shards, Data::OwnRows);
}
TEST(OptimizerInBackward, OfShardsThatStayGatheredStepsAsOnOneRank) {
  expect_as_on_one_rank(cut_into_shards_that_stay, Data::OwnRows);
}

}  // namespace
}  // namespace coshard::optimizer_in_backward
