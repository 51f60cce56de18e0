#pragma once
// A model of a few layers, and its training with replicas or with sharded parameters.
#include <optional>

#include <coshard/styles/fully_shard.h>
#include "tests/styles/support.h"

namespace coshard::testing {

inline DeviceMesh dp_line(World& world) { return init_device_mesh(world, {world.size()}, {"dp"}); }

// MLPs of 10 -> 7 -> 10, one after the other: parts of 10 and 7 rows are uneven, some empty.
struct Layers : Module {
  explicit Layers(World& world, std::int64_t count = 3, std::int64_t in = 10,
                  std::int64_t hidden = 7) {
    register_module("layers", layers);
    for (std::int64_t i = 0; i < count; ++i)
      layers.append(std::make_shared<Mlp>(world, in, hidden, in));
    scale = ones(world.device(), Shape{in}, DType::F64).set_requires_grad(true);
    register_parameter("scale", scale);
  }
  Task<Tensor> run(Tensor x) override {
    for (std::size_t i = 0; i < layers.size(); ++i) x = co_await layers[i].forward(x);
    co_return mul(x, scale);
  }
  ModuleList<Mlp> layers;
  Tensor scale;
};

enum class Way { Replicas, Shards };

struct ShardingKind {
  bool reshard = true;
  Overlap overlap = Overlap::Auto;
  bool recomputes = false;
  int parts = 1;            // woven
  int batches = 1;          // backwards before a step
  bool whole_only = false;  // one group
};

inline void shard_layers(Layers& model, const DeviceMesh& mesh, const FullyShardOptions& options) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) fully_shard(model.layers[i], mesh, options);
  fully_shard(model, mesh, options);
}

struct Trained {
  std::vector<double> losses, norms;
  std::vector<std::vector<double>> parameters;
};

inline Task<void> clip_and_step(AdamW& optimizer, Trained& done) {
  Task<Tensor> clipping = clip_grad_norm(optimizer.parameters(), 1.0);
  const Tensor norm = co_await std::move(clipping);
  done.norms.push_back(norm.item());
  co_await optimizer.step();
}

inline void note_parameters(const AdamW& optimizer, Trained& done) {
  for (const Tensor& p : optimizer.parameters()) {
    const Tensor all = p.is_distributed() ? full_tensor(p.detach()) : p.detach();
    done.parameters.push_back(all.to_vector());
  }
}

// Rows of this rank, of one batch.
inline Tensor rows_of(World& world, int step, int batch) {
  manual_seed(static_cast<std::uint64_t>(100 + step * 10 + batch));
  const Tensor all = random(world, Shape{2 * world.size(), 10});
  return slice(all, 0, 2 * world.rank(), 2 * world.rank() + 2).detach();
}

inline Task<Trained> trained(World& world, Way way, ShardingKind kind, int steps = 10) {
  manual_seed(5);
  Layers model(world);
  const DeviceMesh mesh = dp_line(world);
  const FullyShardOptions options{.reshard_after_forward = kind.reshard, .overlap = kind.overlap};
  if (way == Way::Shards && kind.whole_only) fully_shard(model, mesh, options);
  if (way == Way::Shards && !kind.whole_only) shard_layers(model, mesh, options);
  if (kind.recomputes) model.layers[1].set_recompute();
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  std::optional<DataParallel> replicas;
  if (way == Way::Replicas) replicas.emplace(model.parameters(), mesh, 0);
  Trained done;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    for (int batch = 0; batch < kind.batches; ++batch) {
      if (replicas) replicas->set_requires_gradient_sync(batch + 1 == kind.batches);
      const Tensor x = rows_of(world, step, batch);
      Task<Tensor> forward =
          kind.parts == 1 ? model.forward(x) : woven(model, kind.parts).forward(x);
      const Tensor y = co_await std::move(forward);
      const Tensor loss = mean(mul(y, y));
      done.losses.push_back(loss.item());
      co_await backward(loss);
    }
    Task<void> update = clip_and_step(optimizer, done);
    co_await std::move(update);
  }
  note_parameters(optimizer, done);
  co_return done;
}

inline void expect_all_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 1e-10 * (1 + std::abs(want[i]))) << i;
}

inline void expect_same(const Trained& got, const Trained& want) {
  ASSERT_FALSE(want.losses.empty());
  EXPECT_EQ(got.losses.front(), want.losses.front());  // to the bit: the first forward
  expect_all_near(got.losses, want.losses);
  expect_all_near(got.norms, want.norms);
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (std::size_t p = 0; p < want.parameters.size(); ++p)
    expect_all_near(got.parameters[p], want.parameters[p]);
}

}  // namespace coshard::testing
