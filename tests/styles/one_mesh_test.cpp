// Data, context and tensor parallelism on one mesh of three dimensions: the loss and the gradients
// of one device, for every batch.
#include <coshard/styles/distribute_module.h>
#include <coshard/styles/loss_parallel.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

bool ends_in_one_of(std::string_view path, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return path.ends_with(name); });
}

// Shards over the last mesh dimension what llama_plan does.
void cut_for_tp(const std::string& path, Module& module, const DeviceMesh& mesh) {
  const bool rows = ends_in_one_of(path, {"o_proj", "down_proj", "embed_tokens"});
  if (!rows && !ends_in_one_of(path, {"_proj", "lm_head"})) return;
  const auto axes = module.shard_axes(rows ? ShardBy::Rows : ShardBy::Columns);
  for (const auto& [parameter, placement] : axes->parameters) {
    Tensor& slot = module.parameter(parameter);
    const Layout layout(Replicate(), Replicate(), placement);
    slot = distribute_tensor(slot.detach(), mesh, layout).requires_grad_();
  }
}

Task<void> expect_like_one_device(World& world, std::vector<int> shape, Shape batch) {
  const DeviceMesh mesh = init_device_mesh(world, shape, {"dp", "cp", "tp"});
  auto [plain, model] = twins<nn::CausalLM>(small_llama(), world);
  distribute_module(*model, mesh, cut_for_tp);
  const Tensor ids = integers(world, batch, 11), wanted = integers(world, batch, 10);
  const Layout cut(Shard(0), Shard(1), Replicate());
  const DTensor tokens = distribute_tensor(ids, mesh, cut);
  const DTensor targets = distribute_tensor(wanted, mesh, cut);
  Tensor logits = co_await model->forward(tokens);
  const Redistribution moved = logits.redistribute(Shard(0), Shard(1), Shard(2));
  logits = co_await moved;
  Task<Tensor> losing = loss_parallel_cross_entropy(logits, targets);
  const Tensor loss = co_await std::move(losing);
  co_await backward(loss);
  const Tensor whole = co_await plain->forward(ids);
  const Tensor want = cross_entropy_rows(whole, wanted);
  co_await backward(want);
  expect_close(loss, want);
  for (const NamedParameter& p : model->named_parameters())
    expect_close(p.slot->grad(), plain->parameter(p.name).grad(), 1e-9);
  const Tensor norm = co_await clip_grad_norm(model->parameters(), 1e9);
  const Tensor norm_of_one = co_await clip_grad_norm(plain->parameters(), 1e9);
  EXPECT_NEAR(norm.item(), norm_of_one.item(), 1e-9);
}

TEST(OneMesh, HasTheLossAndGradientsOfOneDevice) {
  const std::vector<std::vector<int>> shapes = {{1, 1, 2}, {2, 1, 2}, {1, 2, 2}, {2, 2, 2}};
  for (const std::vector<int>& shape : shapes)
    for (const std::int64_t rows : {1, 2, 3})
      on_ranks(shape[0] * shape[1] * shape[2], [&](World& world) {
        return expect_like_one_device(world, shape, Shape{rows, 6});
      });
}

}  // namespace
}  // namespace coshard::testing
