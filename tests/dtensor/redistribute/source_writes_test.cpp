// Writes in place to the source of a redistribute in flight, through every kind of handle: what
// arrives is what the source held when the redistribute was issued.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tensor/waits_in_place.h>
#include <coshard/runtime/coro/timer.h>
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
// As a program's own loop would.
void write_by_hand(const Tensor& x, void* data) {
  EXPECT_TRUE(x.is_contiguous());
  const std::vector<double> other(static_cast<std::size_t>(x.local_numel()), -5);
  x.device()->upload(data, other.data(), other.size() * sizeof(double));
  x.mark_written();
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
    {"data()", [](const DTensor& x) { write_by_hand(x, x.data()); }},
    {"data() of to_local", [](const DTensor& x) { write_by_hand(x, to_local(x).data()); }},
    {"data_as<double> of a detached row",
     [](const DTensor& x) {
       const Tensor row = select(x.raw_local(), 0, 0);
       write_by_hand(row, row.data_as<double>());
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

// A write waits for what fills the memory, on ranks that hold nothing of it too.
TEST(WritesInPlace, ToWhatIsInFlightWaitForItOnEveryRank) {
  const std::vector<std::function<void(const Tensor&)>> writers{
      [](const Tensor& x) { normal_(x, 0, 1); }, [](const Tensor& x) { uniform_(x, 0, 1); },
      [](const Tensor& x) { zero_(x); }, [](const Tensor& x) { add_(x, 1.0); }};
  on_slow_ranks([&](World& world, DeviceMesh mesh) -> Task<void> {
    for (const auto& write : writers) {
      const Tensor local = ones(world.device(), Shape{2, 4}, DType::F64);
      const DTensor source = from_local(local, mesh, Layout(Partial()));
      const Redistribution moving = issued(world, source, Layout(Shard(0)));
      const Tensor there = moving.tensor();  // of no rows on the last rank
      write(there);
      EXPECT_FALSE(there.in_flight()) << "rank " << world.rank();
      const DTensor moved = co_await moving;
      EXPECT_EQ(moved.storage(), there.storage());
    }
  });
}

ErrorKind kind_of(const std::function<void()>& call, std::string& text) {
  try {
    call();
  } catch (const Error& error) {
    text = error.what();
    return error.kind();
  }
  return ErrorKind::Cancelled;
}

// The other ranks join once rank 0 has looked.
Task<void> look_while_in_flight(World& world, std::atomic<bool>& looked, int& told) {
  const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
  const DTensor source = source_of(world, mesh, Layout(Partial()));
  for (int i = 0; i < 30'000 && world.rank() > 0 && !looked; ++i) co_await sleep_for(1ms);
  const Redistribution moving = source.redistribute(Replicate());
  if (world.rank() == 0 && on_cpu()) {
    const auto state = moving.tensor().storage()->pending.state();
    clear_waits_in_place();
    EXPECT_EQ(source.const_data(), source.address());
    EXPECT_EQ(source.data_as<const double>()[1], 2);
    EXPECT_EQ(source.raw_local().to_vector()[1], 2);
    EXPECT_TRUE(waits_in_place().empty());
    for (const Tensor& x : {source, source.raw_local(), moving.tensor()}) {
      std::string text;
      EXPECT_EQ(kind_of([&] { x.mark_written(); }, text), ErrorKind::BadInput) << x;
      EXPECT_NE(text.find("all_reduce #0"), std::string::npos) << text;
      ++told;
    }
    EXPECT_FALSE(state->ready());
    looked = true;
    EXPECT_EQ(source.data(), source.address());
    EXPECT_TRUE(state->ready());
    EXPECT_EQ(waits_in_place().at("data"), 1);
    source.mark_written();
  }
  const DTensor moved = co_await moving;
  EXPECT_EQ(moved.to_vector()[1], 6);
  source.mark_written();
}

TEST(ReadersInFlight, AreAwaitedByWhoMayWriteAndByNobodyElse) {
  std::atomic<bool> looked = false;
  int told = 0;
  testing::on_ranks(2, [&](World& world) { return look_while_in_flight(world, looked, told); });
  EXPECT_EQ(told, on_cpu() ? 3 : 0);
}

}  // namespace
}  // namespace coshard::source_writes
