// Writes in place to the source of a redistribute in flight, through every kind of handle: what
// arrives is what the source held when the redistribute was issued.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/redistribute/sums.h"
#include "tests/support/ranks.h"

namespace coshard::source_writes {
namespace {
using namespace std::chrono_literals;
using testing::be_busy;
using testing::counting;
using testing::on_cpu;
using testing::test_options;

const Shape kShape{70, 60};  // uneven parts on 3 ranks

Tensor ones_of(const Tensor& local, DType dtype, const Shape& shape) {
  return ones(local.device(), shape, dtype);
}
struct Writer {
  const char* name;
  void (*write)(const DTensor& source);
};
const Writer kWriters[] = {
    {"add_", [](const DTensor& x) { add_(x, 1.0); }},
    {"mul_ of a slice", [](const DTensor& x) { mul_(slice(x, 0, 0, 70), 2.0); }},
    {"mul_ of a transposed view", [](const DTensor& x) { mul_(transpose(x, 0, 1), 2.0); }},
    {"normal_", [](const DTensor& x) { normal_(x, 0, 1); }},
    {"uniform_", [](const DTensor& x) { uniform_(x, 0, 1); }},
    {"zero_ of a detached handle", [](const DTensor& x) { zero_(x.detach()); }},
    {"zero_ of raw_local", [](const DTensor& x) { zero_(x.raw_local()); }},
    {"fill_ of to_local", [](const DTensor& x) { fill_(to_local(x), 7.0); }},
    {"clamp_ of to_local", [](const DTensor& x) { clamp_(to_local(x), 0.0, 0.1); }},
    {"copy_ to a row of to_local",
     [](const DTensor& x) {
       const Tensor row = select(to_local(x), 0, 0);
       copy_(row, ones_of(row, DType::F64, row.shape()));
     }},
    {"masked_fill_ of to_local",
     [](const DTensor& x) {
       const Tensor local = to_local(x);
       masked_fill_(local, ones_of(local, DType::Bool, local.shape()), 3.0);
     }},
    {"mul_ of from_local of to_local",
     [](const DTensor& x) {
       FromLocalOptions options;
       options.shape = x.shape();
       mul_(from_local(to_local(x), x.mesh(), x.layout(), options), 0.5);
     }},
    {"matmul_into to_local",
     [](const DTensor& x) {
       const Tensor local = to_local(x);
       matmul_into(local, ones_of(local, DType::F64, {local.size(0), 2}),
                   ones_of(local, DType::F64, {2, local.size(1)}));
     }},
};

// Of a sum each rank holds another term.
DTensor source_of(World& world, const DeviceMesh& mesh, const Layout& layout) {
  const double scale = layout.has_partial() ? 1 + world.rank() : 1;
  const Tensor whole = counting(world, kShape, DType::F64, scale);
  if (layout.has_partial()) return from_local(whole, mesh, layout);
  return distribute_tensor(whole, mesh, layout, std::nullopt);
}

struct Move {
  Layout from, to;
};
std::vector<Move> moves() {
  std::vector<Move> all;
  for (const Placement& from : {Placement(Shard(0)), Placement(Shard(1)), Placement(Partial())})
    for (const Placement& to : {Placement(Replicate()), Placement(Shard(0)), Placement(Shard(1))})
      if (from != to) all.push_back({Layout(from), Layout(to)});
  return all;
}

// The last rank joins late: until then nothing of the others' sources has been read.
Redistribution issued(World& world, const DTensor& source, const Layout& to) {
  if (world.rank() + 1 == world.size()) be_busy(1ms);
  return redistribute(source, to);
}

using Body = std::function<Task<void>(World&, DeviceMesh)>;
// On a link that is slow where links are emulated, with and without a thread that moves the data.
void on_slow_ranks(const Body& body) {
  const bool emulated = on_cpu();
  for (const int progress_threads : {0, 1}) {
    WorldOptions options = test_options(3);
    if (emulated) options.link = Link{1'000, 1'000};
    if (emulated) options.progress_threads = progress_threads;
    run_ranks(options, [&](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
      co_await body(world, mesh);
    });
    if (!emulated) return;
  }
}

TEST(SourceWrites, DoNotReachWhatIsInFlight) {
  std::atomic<int> in_flight = 0;
  on_slow_ranks([&](World& world, DeviceMesh mesh) -> Task<void> {
    for (const Move& move : moves())
      for (const Writer& writer : kWriters) {
        const DTensor source = source_of(world, mesh, move.from);
        const std::vector<double> was = full_tensor(source).to_vector();
        const Redistribution moving = issued(world, source, move.to);
        if (moving.tensor().in_flight()) ++in_flight;
        writer.write(source);
        const DTensor moved = co_await moving;
        EXPECT_EQ(full_tensor(moved).to_vector(), was)
            << writer.name << " under " << move.from << " to " << move.to;
        EXPECT_NE(full_tensor(source).to_vector(), was) << writer.name << " wrote nothing";
      }
  });
  if (on_cpu()) {
    EXPECT_GT(in_flight, 0);
  }
}

std::unique_ptr<Optimizer> optimizer_of(const DTensor& parameter, bool adam) {
  const std::vector<Tensor> parameters{parameter};
  if (adam) return std::make_unique<AdamW>(parameters);
  return std::make_unique<SGD>(parameters, SGDOptions{.lr = 1});
}

Task<void> expect_step_after_read(World& world, DeviceMesh mesh, Move move, bool adam) {
  const DTensor source = source_of(world, mesh, move.from).set_requires_grad(true);
  source.set_grad(ones(mesh, move.from, kShape, DType::F64));
  const std::vector<double> was = full_tensor(source.detach()).to_vector();
  const auto optimizer = optimizer_of(source, adam);
  const Redistribution moving = issued(world, source.detach(), move.to);
  co_await optimizer->step();
  const DTensor moved = co_await moving;
  EXPECT_EQ(full_tensor(moved).to_vector(), was) << move.from << " to " << move.to;
  EXPECT_NE(full_tensor(source.detach()).to_vector(), was);
}

TEST(SourceWrites, OfOptimizersDoNotReachWhatIsInFlight) {
  on_slow_ranks([](World& world, DeviceMesh mesh) -> Task<void> {
    for (const Move& move : moves()) {
      if (move.from.has_partial()) continue;  // no parameter
      co_await expect_step_after_read(world, mesh, move, false);
      co_await expect_step_after_read(world, mesh, move, true);
    }
  });
}

}  // namespace
}  // namespace coshard::source_writes
