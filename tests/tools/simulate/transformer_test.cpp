// The forward of an nn::Transformer with the shape of Llama-70B on 8 ideal GPUs, per block: serial,
// and with collectives under the product beside each of them.
#include <gtest/gtest.h>

#include <coshard/coshard.h>
#include "kernels/sim/table.h"
#include "runtime/device/sim/representative.h"
#include "tools/simulate/llama_step.h"

namespace coshard::tools {
namespace {

// Virtual ns.
Task<void> forward_of_layers(World& world, int layers, Overlap overlap) {
  nn::TransformerConfig config;
  config.vocab = 8192, config.dim = 8192, config.layers = layers, config.heads = 64;
  config.kv_heads = 8, config.ffn = 28672, config.seq = 8192, config.dtype = DType::BF16;
  nn::Transformer model(config, world);
  const DeviceMesh plain = init_device_mesh(world, {world.size()}, {"tp"});
  auto& device = dynamic_cast<VirtualDevice&>(*world.device());
  const DeviceMesh linked = plain.with_links({{0, 365e3}});
  const DeviceMesh mesh = linked.with_calibration(products_of(device.model()));
  ParallelizeOptions options;
  options.src_data_rank = std::nullopt;
  options.overlap = overlap;
  ParallelPlan plan = nn::transformer_plan(true);
  Task<void> cut = parallelize_module(model, mesh, std::move(plan), options);
  co_await std::move(cut);
  const Tensor ids = zeros(world.device(), Shape{1, 8192}, DType::I64);
  device.compute_stream().now = 0;
  Task<Tensor> run = model.forward(ids);
  const Tensor logits = co_await std::move(run);
}

std::int64_t forward_ns(int layers, Overlap overlap) {
  ProcessorModel model;
  model.product_rate = model.wide_product_rate = 650e12;
  model.attention_rate = 390e12;
  const auto device = std::make_shared<VirtualDevice>(model);
  const LinkOf link = [](const std::string&, const std::vector<int>&) {
    return LinkModel{"nvlink", {{0, 0, 365e9}}};
  };
  run_representative(8, device, link,
                     [&](World& world) { return forward_of_layers(world, layers, overlap); });
  return device->compute_stream().now;
}

double block_ms(Overlap overlap) {
  return static_cast<double>(forward_ns(4, overlap) - forward_ns(2, overlap)) * 0.5e-6;
}

TEST(TransformerOnSim, TakesItsClosedFormSerialAndPerOperator) {
  kernels::add_sim_kernels();
  EXPECT_NEAR(block_ms(Overlap::Off), 4.335, 0.03 * 4.335);
  const double overlapped = block_ms(Overlap::Auto);
  EXPECT_GT(overlapped, 0.999 * 3.216);  // attention, and the longer one of each pair
  EXPECT_LT(overlapped, 1.05 * 3.216);
}

}  // namespace
}  // namespace coshard::tools
