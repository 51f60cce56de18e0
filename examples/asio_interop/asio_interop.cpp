// Boost.Asio beside training, on the same thread: all ranks train a small MLP, and rank 0 meanwhile
// answers whoever connects to 127.0.0.1 with one line of JSON. In two terminals:
//   build/examples/asio_interop/asio_interop --ranks 2 --port 7777 --steps 1000 --straggle 20
//   nc 127.0.0.1 7777
#include <coshard/asio.h>
#include <coshard/coshard.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <iostream>
#include <optional>
#include <thread>

#include <coshard/runtime/launch/command_line.h>
#include "examples/asio_interop/status_server.h"
#include "runtime/launch/cli_options.h"

namespace cs = coshard;
using asio_interop::Status, asio_interop::StatusServer;

struct Options {
  int steps = 200, straggle = 0;
  std::uint16_t port = 0;
};

// Stops the server when training ends, even if it fails.
struct StopAtEnd {
  std::stop_source& source;
  ~StopAtEnd() { source.request_stop(); }
};

cs::Task<void> train(cs::World& world, Options options, Status& status, std::stop_source& over) {
  const StopAtEnd at_end{over};
  cs::DeviceMesh mesh = cs::init_device_mesh(world, {world.size()}, {"tp"});
  cs::nn::MLP mlp({.dim = 64, .ffn = 256}, world);
  cs::ParallelPlan plan;
  plan["w[13]"] = cs::ColwiseParallel{};
  plan["w2"] = cs::RowwiseParallel{};
  co_await cs::parallelize_module(mlp, mesh, plan);
  cs::AdamW optimizer(mlp.parameters(), {.lr = 1e-3});
  const bool straggler = world.rank() + 1 == world.size();
  for (int step = 1; step <= options.steps; ++step) {
    if (straggler) std::this_thread::sleep_for(std::chrono::milliseconds(options.straggle));
    cs::Tensor x = cs::randn(world.device(), {16, 64});
    cs::Tensor error = co_await mlp.forward(x) - x;
    cs::Tensor loss = cs::mean(error * error);
    optimizer.zero_grad();
    co_await cs::backward(loss);
    co_await optimizer.step();
    status.step = step;
    status.loss = loss.item();
    // With the token use_task any Asio operation is a Task. This one lets the server run even where
    // no other rank is waited for.
    cs::Task<void> turn = boost::asio::post(world.executor().io_context(), cs::use_task);
    co_await std::move(turn);
  }
}

cs::Task<void> nothing() { co_return; }

// Both branches run on all ranks, so that all have the same structure; the server issues no
// collective.
cs::Task<void> program(cs::World& world, Options options) {
  Status status{.ranks = world.size()};
  std::stop_source over;
  std::optional<StatusServer> server;
  cs::Task<void> second = nothing();
  if (world.rank() == 0) {
    server.emplace(world.executor().io_context(), options.port);
    std::cout << "status on 127.0.0.1:" << server->port() << std::endl;
    second = server->serve(status, over.get_token());
  }
  cs::Task<void> first = train(world, options, status, over);
  co_await cs::when_all(std::move(first), std::move(second));
  if (world.rank() == 0) std::cout << to_json(status) << std::flush;
}

// False: help or version was requested and has been printed.
bool read_options(int argc, char** argv, Options& options, cs::WorldOptions& world) {
  using cs::cli::add_number;
  CLI::App app("Trains a small MLP and tells how far it is to whoever connects.", "asio_interop");
  add_number(app, "--port", options.port, 0, 65535, "of the server on 127.0.0.1; 0: a free one");
  add_number(app, "--steps", options.steps, 1, 1'000'000'000, "steps of AdamW");
  add_number(app, "--straggle", options.straggle, 0, 1'000'000'000,
             "ms that the last rank is late in each step");
  cs::cli::add_world_options(app, world);
  return cs::cli::parse(app, argc, argv);
}

int main(int argc, char** argv) {
  Options options;
  cs::WorldOptions world;
  try {
    if (!read_options(argc, argv, options, world)) return 0;
  } catch (const cs::Error& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 2;
  }
  return cs::run(world, [&](cs::World& world) { return program(world, options); });
}
