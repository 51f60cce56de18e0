// Trains and applies LoRA adapters for lora_test.py; token ids are the bytes of texts.
//   lora_files train BASE TEXT OUT RANKS PLAN STEPS: prints the loss of each step, saves the adapter.
//   lora_files logits BASE ADAPTER TEXT OUT RANKS PLAN: of the text, as OUT/model.safetensors.
//   lora_files tokens FROM TO: copies a token file.
#include <coshard/coshard.h>

#include <fstream>
#include <iostream>

namespace cs = coshard;
namespace {

using Words = std::vector<std::string>;

cs::Tensor ids_of(cs::World& world, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::vector<double> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  constexpr std::int64_t kSeq = 256;
  const auto count = static_cast<std::int64_t>(ids.size());
  const cs::Shape shape = count % kSeq == 0 ? cs::Shape{count / kSeq, kSeq} : cs::Shape{1, count};
  return cs::Tensor::from_values(world.device(), shape, cs::DType::I64, ids);
}

cs::Task<void> cut(cs::World& world, cs::nn::LanguageModel& model, std::string plan) {
  if (world.size() == 1) co_return;
  const cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"ranks"});
  if (plan == "fsdp") {
    for (const auto& layer : model.blocks()) cs::fully_shard(*layer, mesh);
    cs::fully_shard(model, mesh);
    co_return;
  }
  const cs::ParallelPlan how = model.plan(plan == "tp-sp");
  cs::Task<void> parallel = cs::parallelize_module(model, mesh, how);
  co_await std::move(parallel);
}

cs::Task<cs::Tensor> loss_of(cs::nn::LanguageModel& model, cs::Tensor ids) {
  const std::int64_t seq = ids.size(1), count = ids.size(0) * (seq - 1);
  cs::Tensor logits = co_await model.forward(cs::contiguous(cs::slice(ids, 1, 0, seq - 1)));
  const cs::Tensor targets = cs::view(cs::contiguous(cs::slice(ids, 1, 1, seq)), cs::Shape{count});
  logits = cs::view(logits, cs::Shape{count, logits.size(2)});
  if (!logits.is_distributed()) co_return cs::cross_entropy(logits, targets);
  co_return co_await cs::loss_parallel_cross_entropy(logits, targets);
}

cs::Task<void> train(cs::World& world, Words args) {
  const auto model = cs::nn::open_model(args[1], world);
  cs::manual_seed(1);
  constexpr cs::LoraOptions kOptions{.rank = 8, .alpha = 16};
  cs::add_lora(*model, "model.layers.*.self_attn.[qvo]_proj", kOptions);
  cs::add_lora(*model, "model.layers.*.mlp.*", kOptions);
  cs::Task<void> cutting = cut(world, *model, args[5]);
  co_await std::move(cutting);
  cs::Task<cs::LoadReport> loading = cs::load(*model, args[1]);
  co_await std::move(loading);
  const cs::Tensor ids = ids_of(world, args[2]);
  cs::AdamW optimizer(model->parameters(), {.lr = 1e-2});
  for (int step = 0; step < std::stoi(args[6]); ++step) {
    optimizer.zero_grad();
    cs::Task<cs::Tensor> forward = loss_of(*model, ids);
    const cs::Tensor loss = co_await std::move(forward);
    cs::Task<void> behind = cs::backward(loss);
    co_await std::move(behind);
    cs::Task<void> stepped = optimizer.step();
    co_await std::move(stepped);
    const double value = loss.item();
    if (world.rank() == 0) std::cout << value << '\n';
  }
  cs::Task<void> saving = cs::save_adapter(*model, args[3]);
  co_await std::move(saving);
}

cs::Task<void> write_logits(cs::World& world, Words args) {
  const auto model = cs::nn::open_model(args[1], world);
  cs::Task<cs::LoadReport> adapters = cs::load_adapter(*model, args[2]);
  co_await std::move(adapters);
  cs::Task<void> cutting = cut(world, *model, args[6]);
  co_await std::move(cutting);
  cs::Task<cs::LoadReport> loading = cs::load(*model, args[1]);
  co_await std::move(loading);
  const cs::NoGradGuard no_grad;
  model->train(false);
  cs::State state;
  state.add("logits", co_await model->forward(ids_of(world, args[3])));
  cs::Task<void> saving = cs::save(state, args[4]);
  co_await std::move(saving);
}

}  // namespace

int main(int argc, char** argv) {
  const Words args(argv + 1, argv + argc);
  if (args.size() == 3 && args[0] == "tokens") {
    cs::TokenFile(args[1]).save(args[2]);
    return 0;
  }
  if (args.size() != 7 || (args[0] != "train" && args[0] != "logits")) {
    std::cerr << "usage: lora_files train BASE TEXT OUT RANKS PLAN STEPS | "
                 "lora_files logits BASE ADAPTER TEXT OUT RANKS PLAN | lora_files tokens FROM TO\n";
    return 2;
  }
  cs::WorldOptions options;
  options.ranks = std::stoi(args[args[0] == "train" ? 4 : 5]);
  try {
    cs::run_ranks(options, [&](cs::World& world) {
      return args[0] == "train" ? train(world, args) : write_logits(world, args);
    });
  } catch (const cs::Error& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
  return 0;
}
