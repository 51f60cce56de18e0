// Gradients that are reduced during backward while the product of an arriving gradient is computed:
// none that the product leads to is reduced before it.
#include <coshard/styles/fully_shard.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

enum class DownWeight { Frozen, Twice };

// x * 2 -> up -> down, beside a layer whose deferred weight gradient fills the wait for what arrives
// at down. Nothing of down's own weight is deferred that would hold up's gradient back: it is
// frozen, or has an older reader.
struct NetThatWaits : Module {
  NetThatWaits(World& world, DownWeight which) : twice(which == DownWeight::Twice) {
    for (auto& [name, layer, in, out] : layers) {
      layer = std::make_shared<nn::Linear>(in, out, world,
                                           nn::LinearOptions{.bias = false, .dtype = DType::F64});
      register_module(name, layer);
    }
    if (twice) return;
    of(kBefore).weight.set_requires_grad(false);
    of(kDown).weight.set_requires_grad(false);
  }
  Task<Tensor> run(Tensor x) override {
    Tensor z = x * 2;
    if (twice) {
      const Tensor before = co_await of(kBefore).forward(z);
      const Tensor after = co_await of(kDown).forward(before);
      z = z + after;
    }
    const Tensor h = co_await of(kUp).forward(z);
    const Tensor y = co_await of(kDown).forward(h);
    const Tensor s = co_await of(kBeside).forward(x.detach());
    co_return z + y + s;
  }

  static constexpr std::size_t kBefore = 0, kUp = 1, kDown = 2, kBeside = 3;
  struct Layer {
    const char* name;
    std::shared_ptr<nn::Linear> linear;
    std::int64_t in, out;
  };
  nn::Linear& of(std::size_t i) { return *layers[i].linear; }
  bool twice;
  std::array<Layer, 4> layers{
      {{"before", {}, 4, 8}, {"up", {}, 4, 8}, {"down", {}, 8, 4}, {"beside", {}, 4, 4}}};
};

ParallelPlan plan_of_waiting_net() {
  ParallelPlan plan;
  for (const char* column : {"before", "up"})
    plan[column] = ColwiseParallel{.input_layouts = Shard(0), .use_local_output = false};
  plan["down"] = RowwiseParallel{.output_layouts = Shard(0), .use_local_output = false};
  plan["beside"] = RowwiseParallel{
      .input_layouts = Replicate(), .output_layouts = Shard(0), .use_local_output = false};
  return plan;
}

enum class WhenReduced { AfterBackward, InBuckets, InShards };

// Of all parameters, averaged over the replicas.
Task<std::vector<std::vector<double>>> reduced_gradients(World& world, DownWeight which,
                                                         Overlap overlap, WhenReduced reduced) {
  manual_seed(3);
  const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
  NetThatWaits net(world, which);
  const ParallelizeOptions options{.overlap = overlap};
  Task<void> cut = parallelize_module(net, mesh["tp"], plan_of_waiting_net(), options);
  co_await std::move(cut);
  std::optional<DataParallel> buckets;
  if (reduced == WhenReduced::InBuckets)
    buckets.emplace(net.parameters(), mesh, 0, DataParallelOptions{.bucket_bytes = 8});
  if (reduced == WhenReduced::InShards) {
    fully_shard(net.of(NetThatWaits::kUp), mesh["dp"]);
    fully_shard(net, mesh["dp"]);
  }
  manual_seed(static_cast<std::uint64_t>(10 + mesh.local_rank("dp")));
  const Tensor x = randn(mesh["tp"], Shard(0), Shape{8, 4}, DType::F64).set_requires_grad(true);
  const Tensor y = co_await net.forward(x);
  const Tensor loss = sum(y * y);
  co_await backward(loss);
  if (reduced == WhenReduced::AfterBackward)
    all_reduce_gradients(net.parameters(), mesh, 0, Reduce::Avg);
  std::vector<std::vector<double>> all;
  for (const Tensor& p : net.parameters())
    all.push_back(p.grad().defined() ? full_tensor(p.grad()).to_vector() : std::vector<double>());
  co_return all;
}

TEST(ArrivingGradients, LeaveOnceTheProductThatLeadsToThemIsComputed) {
  for (const DownWeight which : {DownWeight::Frozen, DownWeight::Twice})
    on_ranks(4, [which](World& world) -> Task<void> {
      const auto want =
          co_await reduced_gradients(world, which, Overlap::Off, WhenReduced::AfterBackward);
      for (const WhenReduced reduced :
           {WhenReduced::AfterBackward, WhenReduced::InBuckets, WhenReduced::InShards}) {
        const auto got = co_await reduced_gradients(world, which, Overlap::Always, reduced);
        EXPECT_EQ(got.size(), want.size());
        for (std::size_t p = 0; p < std::min(got.size(), want.size()); ++p) {
          EXPECT_EQ(got[p].size(), want[p].size()) << "parameter " << p;
          for (std::size_t i = 0; i < std::min(got[p].size(), want[p].size()); ++i)
            EXPECT_NEAR(got[p][i], want[p][i], 1e-9) << "parameter " << p;
        }
      }
    });
}

}  // namespace
}  // namespace coshard::testing
