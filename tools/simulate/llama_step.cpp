#include "tools/simulate/llama_step.h"

#include <algorithm>

#include <coshard/coshard.h>
#include "dtensor/mesh/calibration.h"
#include "runtime/device/sim/virtual_device.h"

namespace coshard::tools {
namespace {

constexpr std::int64_t kLarge = std::int64_t{64} << 20;  // elements
constexpr std::int64_t kMostTokens = 1'000'000'000;

// The link costs that the planner and the gate use: those of a large all_gather.
DeviceMesh mesh_of(World& world, const LlamaRun& run) {
  std::vector<int> shape;
  std::vector<std::string> names;
  std::vector<Link> costs;
  for (const DimLink& dim : run.links.dims) {
    shape.push_back(dim.dim.size);
    names.push_back(dim.dim.name);
    Collective gather;
    gather.kind = CollectiveKind::AllGather;
    gather.extent = kLarge / dim.dim.size * dim.dim.size;
    const LinkTime time = link_time(dim.model, gather, dim.dim.size, 0);
    costs.push_back({static_cast<double>(time.latency_ns) * 1e-3, dim.model.best_rate() * 1e-6});
    if (costs.back() == Link()) costs.back().latency *= 1.001;  // Link() means an unknown link
  }
  const auto& device = dynamic_cast<const VirtualDevice&>(*world.device());
  const DeviceMesh mesh = init_device_mesh(world, shape, names).with_links(costs);
  return mesh.with_calibration(products_of(device.model()));
}

void divides(const char* what, std::int64_t value, const std::string& by, int divisor) {
  CS_REQUIRE(value % divisor == 0, what, " ", value, " is not divisible by ", by, "=", divisor);
}

}  // namespace

std::shared_ptr<const Calibration> products_of(const ProcessorModel& model) {
  GemmTable table;
  table.dtype = DType::BF16;
  table.scale = 4;
  table.multiprocessors = model.multiprocessors;
  for (std::size_t i = 0; i < GemmTable::kPoints; ++i) {
    const GemmTable::Point at = table.point(i);
    KernelWork work;
    work.what = ComputeClass::Gemm;
    work.dtype = table.dtype;
    work.m = at.rows, work.n = at.n, work.k = at.k;
    work.flops = 2.0 * static_cast<double>(at.rows * at.n * at.k);
    work.bytes = 2.0 * static_cast<double>(at.rows * at.k + at.n * at.k + at.rows * at.n);
    table.ns[i] = model.time_ns(work) - model.kernel_ns;
  }
  table.complete();
  auto measured = std::make_shared<Calibration>();
  measured->products.push_back(table);
  return measured;
}

void check(const LlamaRun& run) {
  const int tp = size_of_dim(run.mesh, "tp"), dp = size_of_dim(run.mesh, "dp");
  const nn::CausalLMConfig& c = run.config;
  CS_REQUIRE(c.num_attention_heads % tp == 0 && c.num_key_value_heads % tp == 0, "--mesh ",
             to_string(run.mesh), ": the model's ", c.num_attention_heads, " heads and ",
             c.num_key_value_heads, " key heads are not divisible by tp=", tp);
  divides("the model's intermediate_size", c.intermediate_size, "tp", tp);
  divides("the model's vocab_size", c.vocab_size, "tp", tp);
  divides("--batch", run.batch, "dp", dp);
  CS_REQUIRE(run.batch / dp <= kMostTokens / run.seq, "--batch ", run.batch, " --seq ", run.seq,
             ": more than ", kMostTokens, " tokens of a rank (dp=", dp, ')');
  CS_REQUIRE(run.weave <= run.batch / dp, "--weave ", run.weave, " is more than the ",
             run.batch / dp, " sequences of a rank (--batch ", run.batch, ", dp=", dp, ')');
  if (run.sequence_parallel) divides("--seq", run.seq, "tp", tp);
}

LlamaTraining::LlamaTraining(World& world, const LlamaRun& run)
    : world_(world), run_(run), mesh_(mesh_of(world, run)), model_(run.config, world) {}

Task<void> LlamaTraining::prepare() {
  if (size_of_dim(run_.mesh, "tp") > 1) {
    ParallelizeOptions options;
    options.src_data_rank = std::nullopt;
    options.overlap = run_.overlap;
    ParallelPlan plan = model_.plan(run_.sequence_parallel);
    DeviceMesh tp = mesh_["tp"];
    Task<void> cut = parallelize_module(model_, tp, std::move(plan), options);
    co_await std::move(cut);
  }
  for (std::size_t i = 0; run_.recompute && i < model_.model.layers.size(); ++i)
    model_.model.layers[i].set_recompute();
  if (size_of_dim(run_.mesh, "dp") > 1) {
    DataParallelOptions parallel;
    parallel.overlap = run_.overlap;
    gradients_ =
        std::make_unique<DataParallel>(model_.parameters(), mesh_, mesh_.dim("dp"), parallel);
  }
  optimizer_ = std::make_unique<AdamW>(model_.parameters());
  optimizer_->check_replicas = 0;  // no data that could differ
  const std::int64_t batch = run_.batch / size_of_dim(run_.mesh, "dp");
  tokens_ = zeros(world_.device(), Shape{batch, run_.seq}, DType::I64);
  targets_ = zeros(world_.device(), Shape{batch * run_.seq}, DType::I64);
}

Task<Tensor> LlamaTraining::loss() {
  Task<Tensor> forward = woven(model_, run_.weave).forward(tokens_);
  Tensor logits = co_await std::move(forward);
  logits = view(logits, Shape{targets_.numel(), run_.config.vocab_size});
  if (!logits.is_distributed()) co_return cross_entropy(logits, targets_);
  Task<Tensor> parallel = loss_parallel_cross_entropy(logits, targets_);
  co_return co_await std::move(parallel);
}

Task<void> LlamaTraining::step(PhaseDone done) {
  optimizer_->zero_grad();
  done(Phase::Begin);
  Task<Tensor> forward = loss();
  Tensor loss = co_await std::move(forward);
  done(Phase::Forward);
  Task<void> back = backward(loss);
  co_await std::move(back);
  done(Phase::Backward);
  Task<void> update = optimizer_->step();
  co_await std::move(update);
  const VirtualDevice::Stub stub(*world_.device(), 0);
  (void)loss.item();
  done(Phase::Optimizer);
}

}  // namespace coshard::tools
