// A model is made parallel and trained by ranks that share one thread of the caller's context,
// where nothing may wait in place: with the numbers that ranks on threads of their own get.
#include <boost/asio/io_context.hpp>

#include <coshard/runtime/launch/run_on_asio.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

using Losses = std::vector<std::vector<double>>;  // by rank and step

Task<void> train(World& world, bool sequence_parallel, Losses& losses) {
  const DeviceMesh mesh = line(world);
  nn::Transformer model(tiny_transformer(), world);
  co_await parallelize_module(model, mesh, nn::transformer_plan(sequence_parallel));
  model.layers[0].set_recompute();
  AdamW optimizer(model.parameters(), {.lr = 1e-2});
  for (int step = 0; step < 4; ++step) {
    const Tensor ids = integers(world, Shape{2, 8}, 32), targets = integers(world, Shape{2, 8}, 31);
    const Tensor logits = co_await model.forward(ids);
    const Tensor loss = co_await loss_parallel_cross_entropy(logits, targets);
    co_await backward(loss);
    co_await clip_grad_norm(model.parameters(), 1.0);
    co_await optimizer.step();
    optimizer.zero_grad();
    losses[static_cast<std::size_t>(world.rank())].push_back(loss.item());
  }
}

TEST(OnAsio, ATransformerTrainsWithTheNumbersOfRanksOnThreads) {
  if (!on_cpu()) GTEST_SKIP() << "the host waits for streams in place";
  for (const bool sequence_parallel : {false, true}) {
    Losses on_threads(2), on_asio(2);
    on_ranks(2, [&](World& world) { return train(world, sequence_parallel, on_threads); });
    boost::asio::io_context io;
    std::exception_ptr error;
    run_ranks(
        test_options(2), [&](World& world) { return train(world, sequence_parallel, on_asio); },
        io.get_executor(), [&](const std::exception_ptr& ended) { error = ended; });
    io.run();
    ASSERT_EQ(error ? text_of(error) : "", "");
    EXPECT_EQ(on_asio, on_threads);
    EXPECT_LT(on_asio[0].back(), on_asio[0].front());
  }
}

// What waits in place is refused there by its name.
std::string refusal_of(const Program& program) {
  boost::asio::io_context io;
  std::exception_ptr error;
  run_ranks(test_options(2), program, io.get_executor(),
            [&](const std::exception_ptr& ended) { error = ended; });
  io.run();
  return error ? text_of(error) : "";
}
Task<void> distributes(World& world) {
  const DTensor cut = distribute_tensor(integers(world, {4, 4}, 9), line(world), Shard(0));
  co_return;
}
Task<void> takes_the_whole(World& world) {
  const Tensor rows = integers(world, {2, 4}, 9);
  const Tensor whole = full_tensor(from_local(rows, line(world), Shard(0)));
  co_return;
}
TEST(OnAsio, WhatWaitsInPlaceIsRefusedByItsName) {
  if (!on_cpu()) GTEST_SKIP() << "the host waits for streams in place";
  const std::string distributed = refusal_of(distributes), whole = refusal_of(takes_the_whole);
  EXPECT_CONTAINS(distributed, "distribute_tensor: its input is in flight and rank");
  EXPECT_CONTAINS(whole, "full_tensor: its input is in flight and rank");
}

}  // namespace
}  // namespace coshard::testing
