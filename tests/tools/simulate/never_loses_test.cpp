// On 200 drawn shapes and links two overlapped layers are never slower than 0.98 x the serial ones,
// on the GPU that the gate takes for granted: exact, since time is virtual.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <coshard/coshard.h>
#include "kernels/sim/table.h"
#include "runtime/device/sim/representative.h"

namespace coshard::tools {
namespace {

struct Draw {
  int ranks;
  std::int64_t tokens, dim, ffn;
  double latency_us, gigabytes_per_s;
  bool sequence;  // sharded between the layers; else all_reduced
};

std::ostream& operator<<(std::ostream& out, const Draw& d) {
  return out << d.tokens << " x " << d.dim << " x " << d.ffn << " on " << d.ranks << " ranks, "
             << d.latency_us << " us, " << d.gigabytes_per_s << " GB/s"
             << (d.sequence ? ", sequence" : "");
}

Draw draw(std::mt19937_64& random) {
  const auto between = [&](double low, double high) {  // evenly on a logarithmic scale
    return low * std::pow(high / low, std::uniform_real_distribution<>(0, 1)(random));
  };
  Draw d;
  d.ranks = 1 << std::uniform_int_distribution<>(1, 3)(random);
  d.tokens = 64 * static_cast<std::int64_t>(between(1, 256));
  d.dim = 64 * static_cast<std::int64_t>(between(2, 128));
  d.ffn = 64 * static_cast<std::int64_t>(between(2, 512));
  d.latency_us = between(0.5, 50);
  d.gigabytes_per_s = between(5, 900);
  d.sequence = random() % 2 == 0;
  return d;
}

// Two layers, each with a collective of its own.
struct TwoLayers : Module {
  TwoLayers(const Draw& d, World& world)
      : up(d.dim, d.ffn, world, {.bias = false, .dtype = DType::BF16}),
        down(d.ffn, d.dim, world, {.bias = false, .dtype = DType::BF16}) {
    register_module("up", up);
    register_module("down", down);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor hidden = co_await up.forward(x);
    co_return co_await down.forward(gelu(hidden));
  }
  nn::Linear up, down;
};

Task<void> forward(World& world, const Draw& d, Overlap overlap) {
  TwoLayers layers(d, world);
  const DeviceMesh plain = init_device_mesh(world, {d.ranks}, {"tp"});
  const DeviceMesh mesh = plain.with_links({{d.latency_us, d.gigabytes_per_s * 1e3}});
  const Placement between = d.sequence ? Shard(0) : Replicate();
  ParallelPlan plan;
  plan["up"] = ColwiseParallel{.input_layouts = between};
  plan["down"] = RowwiseParallel{.output_layouts = between};
  ParallelizeOptions options;
  options.src_data_rank = std::nullopt;
  options.overlap = overlap;
  Task<void> cut = parallelize_module(layers, mesh, std::move(plan), options);
  co_await std::move(cut);
  const std::int64_t rows = d.sequence ? d.tokens / d.ranks : d.tokens;
  Tensor x = empty(world.device(), Shape{rows, d.dim}, DType::BF16);
  VirtualStream& stream = dynamic_cast<VirtualDevice&>(*world.device()).compute_stream();
  stream.now = 0;
  const NoGradGuard no_grad;
  const Tensor y = co_await layers.forward(std::move(x));
}

std::int64_t time_of(const Draw& d, Overlap overlap) {
  ProcessorModel model;
  model.product_rate = model.wide_product_rate = model.attention_rate = 400e12;
  model.multiprocessors = 132;
  model.kernel_ns = 4000;
  const auto device = std::make_shared<VirtualDevice>(model);
  const LinkOf link = [&d](const std::string&, const std::vector<int>&) {
    return LinkModel{"link", {{d.latency_us * 1e3, 0, d.gigabytes_per_s * 1e9}}};
  };
  run_representative(d.ranks, device, link,
                     [&](World& world) { return forward(world, d, overlap); });
  return device->compute_stream().now;
}

TEST(NeverLoses, OnAnyOf200DrawnShapesAndLinks) {
  kernels::add_sim_kernels();
  std::mt19937_64 random(1);
  int faster = 0;
  for (int i = 0; i < 200; ++i) {
    const Draw d = draw(random);
    const std::int64_t serial = time_of(d, Overlap::Off), chosen = time_of(d, Overlap::Auto);
    EXPECT_LE(0.98 * static_cast<double>(chosen), static_cast<double>(serial)) << d;
    faster += chosen < serial ? 1 : 0;
  }
  EXPECT_GT(faster, 20);  // of those that it chooses to overlap, most gain
}

}  // namespace
}  // namespace coshard::tools
