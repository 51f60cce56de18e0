// Random nets of column-wise and row-wise blocks: layers that run several times, beside siblings,
// woven or recomputed, with frozen weights, hooks and detached values. Over tensor-parallel ranks
// and over replicas or shards of the parameters, losses and gradients are those of the plain net.
#include <algorithm>
#include <optional>

#include <coshard/styles/fully_shard.h>
#include "tests/styles/support.h"
#include "tests/support/seeds.h"

namespace coshard::random_nets {
namespace {

using testing::Dice;
using testing::on_cpu;
using testing::random;
using testing::test_options;

// --- what a seed draws ---

struct BlockDraw {
  bool bias, halves, scales_before, gathers, gated, together, detaches, residual, scales_after;
  bool frozen_up, frozen_gate, frozen_down, frozen_bias;
  bool own_group, own_group_of_up;  // of fully_shard
};
BlockDraw draw_block(Dice& dice) {
  BlockDraw block{};
  block.bias = dice.one_in(2);
  block.halves = dice.one_in(2);
  block.scales_before = dice.one_in(2);
  block.gathers = dice.one_in(2);
  block.gated = dice.one_in(2);
  block.together = block.gated && dice.one_in(3);
  block.detaches = dice.one_in(4);
  block.residual = dice.one_in(2);
  block.scales_after = dice.one_in(2);
  block.frozen_up = dice.one_in(6);
  block.frozen_gate = dice.one_in(6);
  block.frozen_down = dice.one_in(2);
  block.frozen_bias = dice.one_in(6);
  block.own_group = dice.one_in(2);
  block.own_group_of_up = dice.one_in(2);
  return block;
}

// What makes the next value from values made before.
enum class Makes { OfBlock, ByRecompute, OfSiblings, Sum, Sine, Detached };
Makes draw_kind(Dice& dice) {
  static constexpr Makes kOthers[] = {Makes::ByRecompute, Makes::OfSiblings, Makes::Sum,
                                      Makes::Sine, Makes::Detached};
  return dice.one_in(2) ? Makes::OfBlock : kOthers[dice.below(5)];
}
struct ValueDraw {
  Makes how;
  std::size_t from, other;  // values
  std::size_t block;
  bool hooked;
};
std::size_t pick(Dice& dice, std::size_t count) {
  return static_cast<std::size_t>(dice.below(static_cast<int>(count)));
}
struct NetDraw {
  std::vector<BlockDraw> blocks;
  std::vector<ValueDraw> values;
  std::vector<std::size_t> added;  // to the last value
};
NetDraw draw_net(Dice& dice) {
  NetDraw net;
  net.blocks.resize(1 + pick(dice, 4));
  for (BlockDraw& block : net.blocks) block = draw_block(dice);
  const bool hooks = dice.one_in(3);
  const std::size_t values = 2 + pick(dice, 6);
  for (std::size_t i = 0; i < values; ++i) {
    const Makes how = draw_kind(dice);
    const std::size_t from = dice.one_in(3) ? pick(dice, i + 1) : i;
    const std::size_t other = pick(dice, i + 1), block = pick(dice, net.blocks.size());
    net.values.push_back({how, from, other, block, hooks && dice.one_in(2)});
  }
  net.added.resize(pick(dice, 3));
  for (std::size_t& value : net.added) value = pick(dice, values + 1);
  return net;
}

enum class Data { OneReplica, InBuckets, InShards };
struct Job {
  int dp = 1, tp = 1;
  Data data = Data::OneReplica;
  Overlap overlap = Overlap::Off;
  std::optional<double> bytes_per_us;  // along tp, where links are known
  int parts = 1;                       // woven
  int batches = 1;                     // backwards before a step
  std::int64_t bucket_bytes = 0;
  int rank_threads = 0, progress_threads = 0;
  std::int64_t width = 4, hidden = 4, rows = 1, length = 1;
  bool input_grad = false;
  NetDraw net;
};
Job draw_job(std::uint64_t seed) {
  static constexpr int kShapes[][2] = {{1, 2}, {2, 1}, {1, 3}, {3, 1}, {1, 4}, {2, 2}};
  static constexpr Overlap kOverlaps[] = {Overlap::Off, Overlap::Auto, Overlap::Always};
  Dice dice(seed);
  Job job;
  const auto& shape = kShapes[std::min(dice.below(12), 5)];
  job.dp = shape[0], job.tp = shape[1];
  if (job.dp > 1) job.data = dice.one_in(2) ? Data::InBuckets : Data::InShards;
  job.overlap = kOverlaps[std::min(dice.below(6), 2)];
  if (dice.one_in(2)) job.bytes_per_us = dice.one_in(2) ? 20 : 2000;
  job.parts = 1 + dice.below(3);
  job.batches = 1 + dice.below(2);
  job.bucket_bytes = dice.one_in(4) ? 0 : 8;
  job.rank_threads = dice.below(2);
  job.progress_threads = dice.below(2);
  job.width = 4 * (1 + dice.below(2));
  // fully_shard cuts rows that tensor parallelism has sharded into even parts only.
  job.hidden =
      job.data == Data::InShards ? job.dp * job.tp * (1 + dice.below(3)) : job.tp + dice.below(9);
  job.rows = job.parts + dice.below(3);
  job.length = 1 + dice.below(6);
  job.input_grad = dice.one_in(2);
  job.net = draw_net(dice);
  return job;
}

// --- the net ---

struct Factor : Module {
  Factor(World& world, std::int64_t width)
      : weight(full(world.device(), {width}, 1.1, DType::F64)) {
    weight.set_requires_grad(true);
    register_parameter("weight", weight);
  }
  Task<Tensor> run(Tensor x) override { co_return mul(x, weight); }
  Tensor weight;
};

struct Block : Module {
  Block(World& world, const Job& job, const BlockDraw& drawn)
      : draw(drawn),
        up(job.width, job.hidden, world, options()),
        gate(job.width, job.hidden, world, options()),
        down(job.hidden, job.width, world, options()),
        factor(world, job.width) {
    register_module("up", up);
    register_module("gate", gate);
    register_module("down", down);
    register_module("factor", factor);
    up.weight.set_requires_grad(!draw.frozen_up);
    gate.weight.set_requires_grad(!draw.frozen_gate);
    down.weight.set_requires_grad(!draw.frozen_down);
    if (draw.bias) up.bias.set_requires_grad(!draw.frozen_bias);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor in = x;
    if (draw.halves) in = in * 0.5;
    if (draw.scales_before) in = co_await factor.forward(in);
    if (draw.gathers && in.is_distributed()) in = in.redistribute(Replicate()).tensor();
    Tensor h, g;
    if (draw.together) {
      auto both = when_all(up.forward(in), gate.forward(in));
      std::tie(h, g) = co_await std::move(both);
    } else {
      h = co_await up.forward(in);
      if (draw.gated) g = co_await gate.forward(in);
    }
    h = tanh(h);
    if (draw.gated) h = h * g;
    if (draw.detaches) h = h.detach();
    Tensor y = co_await down.forward(h);
    if (draw.residual) y = y + x;
    if (draw.scales_after) y = co_await factor.forward(y);
    co_return y;
  }

  BlockDraw draw;
  nn::Linear up, gate, down;
  Factor factor;

 private:
  nn::LinearOptions options() const {
    return {.bias = draw.bias, .dtype = DType::F64, .init_std = 0.3};
  }
};

struct Net : Module {
  Net(World& world, const Job& job) : draw(job.net) {
    register_module("blocks", blocks);
    for (const BlockDraw& block : draw.blocks)
      blocks.append(std::make_shared<Block>(world, job, block));
  }
  Task<Tensor> run(Tensor x) override {
    std::vector<Tensor> values{x};
    for (const ValueDraw& value : draw.values) {
      Task<Tensor> making = made_of(values, value);
      Tensor made = co_await std::move(making);
      if (value.hooked && made.requires_grad())
        register_hook(made, [](const Tensor& gradient) { return gradient * 1.5; });
      values.push_back(std::move(made));
    }
    Tensor total = values.back();
    for (const std::size_t i : draw.added) total = total + values[i];
    co_return total;
  }

  NetDraw draw;
  ModuleList<Block> blocks;

 private:
  // `values` are the caller's, which awaits it.
  Task<Tensor> made_of(const std::vector<Tensor>& values, const ValueDraw& value) {
    const Tensor from = values[value.from], other = values[value.other];
    Block& block = blocks[value.block];
    switch (value.how) {
      case Makes::OfBlock: co_return co_await block.forward(from);
      case Makes::ByRecompute: co_return co_await recompute(block, from);
      case Makes::OfSiblings: {
        auto both = when_all(block.forward(from), block.forward(other));
        const auto [one, second] = co_await std::move(both);
        co_return one + second;
      }
      case Makes::Sum: co_return from + other * 0.5;
      case Makes::Sine: co_return sin(from);
      case Makes::Detached: break;
    }
    co_return from.detach() * 2.0;
  }
};

// --- its training ---

enum class Program { Plain, Parallel };

DeviceMesh mesh_of(World& world, const Job& job) {
  const DeviceMesh mesh = init_device_mesh(world, {job.dp, job.tp}, {"dp", "tp"});
  if (!job.bytes_per_us) return mesh;
  return mesh.with_links(
      {{.latency = 50, .bytes_per_us = 100}, {.latency = 1, .bytes_per_us = *job.bytes_per_us}});
}

Task<void> parallelize(Net& net, DeviceMesh mesh, const Job& job) {
  ParallelPlan plan;
  for (const char* column : {"blocks.*.up", "blocks.*.gate"})
    plan[column] = ColwiseParallel{.input_layouts = Shard(1), .use_local_output = false};
  plan["blocks.*.down"] = RowwiseParallel{.output_layouts = Shard(1), .use_local_output = false};
  plan["blocks.*.factor"] = NoParallel{.desired_input_layout = Shard(1), .output_layout = Shard(1)};
  const ParallelizeOptions options{.overlap = job.overlap};
  Task<void> cutting = parallelize_module(net, mesh["tp"], plan, options);
  co_await std::move(cutting);
  if (job.data != Data::InShards) co_return;
  const FullyShardOptions sharding{.overlap = job.overlap};
  for (std::size_t i = 0; i < net.blocks.size(); ++i) {
    Block& block = net.blocks[i];
    if (!block.draw.own_group) continue;
    if (block.draw.own_group_of_up) fully_shard(block.up, mesh["dp"], sharding);
    fully_shard(block, mesh["dp"], sharding);
  }
  fully_shard(net, mesh["dp"], sharding);
}

// The rows of all replicas, or this one's with its part of their length.
Tensor input_of(World& world, const DeviceMesh& mesh, const Job& job, Program program, int number) {
  manual_seed(static_cast<std::uint64_t>(100 + number));
  Tensor x = random(world, Shape{job.rows * job.dp, job.length, job.width});
  if (program == Program::Parallel) {
    const std::int64_t first = job.rows * mesh.local_rank("dp");
    x = contiguous(slice(x, 0, first, first + job.rows));
    x = distribute_tensor(x, mesh["tp"], Shard(1), std::nullopt);
  }
  return x.detach().set_requires_grad(job.input_grad);
}

double mean_over_replicas(const Tensor& loss, const DeviceMesh& mesh) {
  Tensor whole = loss.detach();
  if (whole.is_distributed()) whole = full_tensor(whole);
  if (mesh.size(0) == 1) return whole.item();
  return full_tensor(from_local(whole, mesh["dp"], Partial(Reduce::Avg))).item();
}

// Losses and gradients, by name.
using Noted = std::vector<std::pair<std::string, std::vector<double>>>;

void note_gradients(Net& net, int step, Noted& noted) {
  for (const NamedParameter& p : net.named_parameters()) {
    if (!p.slot->requires_grad()) continue;
    const Tensor gradient = p.slot->grad();
    std::vector<double> values(static_cast<std::size_t>(p.slot->numel()));
    if (gradient.defined())
      values = (gradient.is_distributed() ? full_tensor(gradient.detach()) : gradient).to_vector();
    noted.emplace_back(str_cat("the gradient of ", p.name, " in step ", step), std::move(values));
  }
}

Task<Noted> trained(World& world, const Job& job, Program program) {
  manual_seed(3);
  Net net(world, job);
  const DeviceMesh mesh = mesh_of(world, job);
  if (program == Program::Parallel) co_await parallelize(net, mesh, job);
  std::optional<DataParallel> replicas;
  if (program == Program::Parallel && job.data == Data::InBuckets)
    replicas.emplace(net.parameters(), mesh, 0,
                     DataParallelOptions{.overlap = job.overlap, .bucket_bytes = job.bucket_bytes});
  std::vector<Tensor> trainable;
  for (const Tensor& p : net.parameters())
    if (p.requires_grad()) trainable.push_back(p);
  SGD optimizer(trainable, {.lr = 0.01});
  Noted noted;
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    for (int batch = 0; batch < job.batches; ++batch) {
      if (replicas) replicas->set_requires_gradient_sync(batch + 1 == job.batches);
      const Tensor x = input_of(world, mesh, job, program, 10 * step + batch);
      const bool weaves = program == Program::Parallel && job.parts > 1;
      Task<Tensor> forward = weaves ? woven(net, job.parts).forward(x) : net.forward(x);
      const Tensor y = co_await std::move(forward);
      const Tensor loss = mean(y * y);
      const double whole = program == Program::Plain ? loss.item() : mean_over_replicas(loss, mesh);
      noted.emplace_back(str_cat("loss ", batch, " of step ", step), std::vector<double>{whole});
      if (!loss.requires_grad()) continue;  // all of it is detached
      Task<void> walk = backward(loss);
      co_await std::move(walk);
    }
    note_gradients(net, step, noted);
    co_await optimizer.step();
  }
  co_return noted;
}

// To an error that is small beside the largest value.
std::string difference(const Noted& got, const Noted& want) {
  if (got.size() != want.size()) return "other parameters have gradients";
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto& [name, values] = want[i];
    if (got[i].second.size() != values.size()) return str_cat(name, " has another size");
    double largest = 1, worst = 0;
    for (std::size_t k = 0; k < values.size(); ++k) {
      largest = std::max(largest, std::abs(values[k]));
      worst = std::max(worst, std::abs(got[i].second[k] - values[k]));
    }
    if (!(worst <= 1e-9 * largest)) return str_cat(name, " is off by ", worst);
  }
  return "";
}

TEST(RandomNets, HaveTheLossesAndGradientsOfThePlainNet) {
  const std::uint64_t share = on_cpu() ? 5 : 100;  // the fake driver is 20 times slower
  const std::uint64_t first = testing::first_seed(), count = (testing::seeds() + share - 1) / share;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Job job = draw_job(seed);
    WorldOptions options = test_options(job.dp * job.tp);
    if (on_cpu()) {
      options.rank_threads = job.rank_threads;
      options.progress_threads = job.progress_threads;
    }
    const auto compare = [&](World& world) -> Task<void> {
      const Noted want = co_await trained(world, job, Program::Plain);
      const Noted got = co_await trained(world, job, Program::Parallel);
      EXPECT_EQ(difference(got, want), "") << testing::how_to_replay(seed);
    };
    EXPECT_NO_THROW(run_ranks(options, compare)) << testing::how_to_replay(seed);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace coshard::random_nets
