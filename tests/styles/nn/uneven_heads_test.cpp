// Heads that the ranks cannot share evenly, and fewer key heads than ranks: what each rank holds,
// what training and checkpoints make of it.
#include <filesystem>

#include "tests/dtensor/checkpoint/stored_files.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

nn::CausalLMConfig config_of(std::int64_t heads, std::int64_t key_heads) {
  nn::CausalLMConfig config = small_llama();
  config.num_attention_heads = heads;
  config.num_key_value_heads = key_heads;
  config.head_dim = 4;
  config.qk_norm = true;
  config.qkv_bias = config.o_bias = true;
  config.model_type = "qwen3";
  return config;
}

struct Held {
  std::int64_t queries, keys;
};

// Heads by rank.
void expect_heads(std::int64_t heads, std::int64_t key_heads, std::vector<Held> held) {
  on_ranks(static_cast<int>(held.size()), [&](World& world) -> Task<void> {
    nn::CausalLM model(config_of(heads, key_heads), world);
    Task<void> cut = parallelize_module(model, line(world), model.plan());
    co_await std::move(cut);
    const nn::CausalLMAttention& attention = model.model.layers[1].self_attn;
    const auto [queries, keys] = held[static_cast<std::size_t>(world.rank())];
    EXPECT_EQ(attention.q_proj.weight.local_shape(), (Shape{4 * queries, 16}));
    EXPECT_EQ(attention.q_proj.bias.local_shape(), (Shape{4 * queries}));
    EXPECT_EQ(attention.k_proj.weight.local_shape(), (Shape{4 * keys, 16}));
    EXPECT_EQ(attention.v_proj.bias.local_shape(), (Shape{4 * keys}));
    EXPECT_EQ(attention.o_proj.weight.local_shape(), (Shape{16, 4 * queries}));
  });
}

TEST(UnevenHeads, StayTogetherInWholeGroups) {
  expect_heads(9, 3, {{9, 3}});
  expect_heads(9, 3, {{6, 2}, {3, 1}});
  expect_heads(9, 3, {{3, 1}, {3, 1}, {3, 1}});
  expect_heads(10, 5, {{4, 2}, {4, 2}, {2, 1}, {0, 0}});
}

TEST(UnevenHeads, SeeAllKeyHeadsIfThereAreFew) {
  expect_heads(9, 3, {{3, 3}, {3, 3}, {3, 3}, {0, 3}});
  expect_heads(8, 2, {{2, 2}, {2, 2}, {2, 2}, {2, 2}});
  expect_heads(8, 2, {{3, 2}, {3, 2}, {2, 2}});
  expect_heads(6, 1, {{3, 1}, {3, 1}});
}

TEST(UnevenHeads, ArePlainShardsWhereThoseFit) {
  on_ranks(2, [](World& world) -> Task<void> {
    nn::CausalLM even(config_of(8, 4), world), odd(config_of(9, 3), world);
    Task<void> cut = parallelize_module(even, line(world), even.plan());
    co_await std::move(cut);
    EXPECT_EQ(even.model.layers[0].self_attn.q_proj.weight.layout(), Layout(Shard(0)));
    cut = parallelize_module(odd, line(world), odd.plan());
    co_await std::move(cut);
    const nn::CausalLMAttention& attention = odd.model.layers[0].self_attn;
    EXPECT_EQ(attention.q_proj.weight.layout(), Layout(StridedShard(0, 1, 12)));
    EXPECT_EQ(attention.k_proj.weight.layout(), Layout(StridedShard(0, 1, 4)));
    EXPECT_EQ(attention.o_proj.weight.layout(), Layout(StridedShard(1, 1, 12)));
  });
}

TEST(UnevenHeads, OfAttentionAloneMayLeaveRanksWithNone) {
  on_ranks(4, [](World& world) -> Task<void> {
    nn::TransformerConfig config = tiny_transformer();
    config.kv_heads = 2;
    config.dtype = DType::F64;
    for (const bool sequence : {false, true}) {
      auto [plain, model] = twins<nn::Transformer>(config, world);
      Task<void> cut = parallelize_module(*model, line(world), nn::transformer_plan(sequence));
      co_await std::move(cut);
      const std::int64_t rows = world.rank() < 2 ? 8 : 0;
      EXPECT_EQ(model->layers[0].attn.wq.weight.local_shape(), (Shape{rows, 16}));
      const Tensor ids = integers(world, Shape{2, 8}, 32);
      const Tensor want = co_await plain->forward(ids);
      const Tensor got = co_await model->forward(ids);
      expect_close(got, want);
      const Tensor wanted_loss = sum(want * want), loss = sum(got * got);
      co_await backward(wanted_loss);
      co_await backward(loss);
      for (const NamedParameter& p : model->named_parameters())
        expect_close(p.slot->grad(), plain->parameter(p.name).grad(), 1e-9);
    }
  });
}

struct Ways {
  bool sequence;
  Overlap overlap;
  bool recompute;
};

Task<void> compare_gradients(World& world, nn::CausalLMConfig config, Ways ways) {
  auto [plain, model] = twins<nn::CausalLM>(config, world);
  ParallelizeOptions options;
  options.overlap = ways.overlap;
  Task<void> cut = parallelize_module(*model, line(world), model->plan(ways.sequence), options);
  co_await std::move(cut);
  for (const auto& block : model->blocks()) block->set_recompute(ways.recompute);
  const Tensor ids = integers(world, Shape{2, 8}, 11);
  const Tensor want = co_await plain->forward(ids), got = co_await model->forward(ids);
  expect_close(got, want);
  const Tensor wanted_loss = sum(want * want), loss = sum(got * got);
  co_await backward(wanted_loss);
  co_await backward(loss);
  for (const NamedParameter& p : model->named_parameters())
    expect_close(p.slot->grad(), plain->parameter(p.name).grad(), 1e-9);
}

TEST(UnevenHeads, HaveTheGradientsOfOneRankOverlappedAndRecomputed) {
  for (const auto& [heads, key_heads] : {std::pair{9, 3}, {8, 2}})
    for (const int ranks : {2, 4})
      for (const Ways ways : {Ways{false, Overlap::Always, false},
                              {true, Overlap::Always, false},
                              {true, Overlap::Off, true},
                              {false, Overlap::Auto, true}}) {
        SCOPED_TRACE(str_cat(heads, " heads on ", ranks, ways.sequence ? ", tp-sp" : ", tp"));
        on_ranks(ranks, [&, heads = heads, key_heads = key_heads](World& world) {
          return compare_gradients(world, config_of(heads, key_heads), ways);
        });
      }
}

Task<double> step(nn::CausalLM& model, Optimizer& optimizer, Tensor ids) {
  Tensor logits = co_await model.forward(std::move(ids));
  if (logits.is_distributed()) logits = full_tensor(logits);
  const Tensor loss = mean(logits * logits);
  optimizer.zero_grad();
  Task<void> back = loss.backward();
  co_await std::move(back);
  Task<void> stepped = optimizer.step();
  co_await std::move(stepped);
  co_return loss.item();
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Cuts {
  int tp, dp;
  bool sequence = false;
};

// Loads what one rank has trained and saved, saves it again, trains on.
Task<void> go_on(World& world, nn::CausalLMConfig config, Cuts cuts, std::string folder,
                 std::vector<double> want) {
  nn::CausalLM model(config, world);
  const DeviceMesh mesh = init_device_mesh(world, {cuts.dp, cuts.tp}, {"dp", "tp"});
  Task<void> cut = parallelize_module(model, mesh["tp"], model.plan(cuts.sequence));
  co_await std::move(cut);
  if (cuts.dp > 1) {
    for (const auto& layer : model.model.layers) fully_shard(*layer, mesh["dp"]);
    fully_shard(model, mesh["dp"]);
  }
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  Task<LoadReport> loading = load(model, optimizer, folder + "/one");
  co_await std::move(loading);
  const std::string copy = str_cat(folder, "/", cuts.tp, "x", cuts.dp, cuts.sequence);
  Task<void> saved = save(model, optimizer, copy);
  co_await std::move(saved);
  for (const double loss : want) {
    Task<double> again = step(model, optimizer, integers(world, Shape{2, 8}, 11));
    EXPECT_NEAR(co_await std::move(again), loss, 1e-8 * loss);
  }
}

TEST(UnevenHeads, TrainAndAreSavedOnAnyMesh) {
  for (const auto& [heads, key_heads] : {std::pair{9, 3}, {8, 2}}) {
    const ScratchFolder scratch;
    const nn::CausalLMConfig config = config_of(heads, key_heads);
    std::vector<double> want;
    on_ranks(1, [&](World& world) -> Task<void> {
      nn::CausalLM model(config, world);
      AdamW optimizer(model.parameters(), {.lr = 0.01});
      Task<double> first = step(model, optimizer, integers(world, Shape{2, 8}, 11));
      co_await std::move(first);
      Task<void> saved = save(model, optimizer, scratch.path("one"));
      co_await std::move(saved);
      for (int i = 0; i < 2; ++i) {
        Task<double> next = step(model, optimizer, integers(world, Shape{2, 8}, 11));
        want.push_back(co_await std::move(next));
      }
    });
    for (const Cuts cuts : {Cuts{2, 1}, {3, 1}, {4, 1, true}, {2, 2}, {3, 2, true}}) {
      SCOPED_TRACE(str_cat(heads, " heads, tp ", cuts.tp, ", dp ", cuts.dp));
      on_ranks(cuts.tp * cuts.dp,
               [&](World& world) { return go_on(world, config, cuts, scratch.path(""), want); });
      const std::string copy = scratch.path(str_cat(cuts.tp, "x", cuts.dp, cuts.sequence));
      for (const char* file : {"/model.safetensors", "/training/optimizer.safetensors"})
        EXPECT_TRUE(bytes_of(copy + file) == bytes_of(scratch.path("one") + file)) << file;
    }
  }
}

}  // namespace
}  // namespace coshard::testing
