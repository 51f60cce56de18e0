// How fully_shard cuts parameters, also those that tensor parallelism has cut unevenly.
#include "styles/shard_cut.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/styles/one_device.h"

namespace coshard::testing {
namespace {

struct TwoDims {
  std::vector<int> shape;  // dp and tp, in the order of `names`
  std::vector<std::string> names = {"dp", "tp"};
  int ranks() const { return shape[0] * shape[1]; }
};

std::vector<TwoDims> meshes_of(const std::vector<std::pair<int, int>>& sizes) {
  std::vector<TwoDims> all;
  for (const auto& [dp, tp] : sizes) {
    all.push_back({{dp, tp}});
    all.push_back({{tp, dp}, {"tp", "dp"}});
  }
  return all;
}

struct HoldsOne : Module {
  explicit HoldsOne(Tensor value) : weight(std::move(value)) {
    weight.set_requires_grad(true);
    register_parameter("weight", weight);
  }
  Task<Tensor> run(Tensor x) override { co_return mul(x, sum(mul(weight, weight))); }
  Tensor weight;
};

Tensor counting(World& world, const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(numel(shape)));
  std::iota(values.begin(), values.end(), 1.0);
  return Tensor::from_values(world.device(), shape, DType::F64, values);
}

// The shards together are the parameter, and each rank holds a part of what it had of it.
void expect_cut(const Tensor& before, HoldsOne& module, const std::string& what) {
  SCOPED_TRACE(what);
  const std::vector<double> had = before.raw_local().to_vector();
  const std::vector<double> has = module.weight.raw_local().to_vector();
  EXPECT_TRUE(std::ranges::includes(had, has));  // both ascend
  const Tensor whole = full_tensor(module.weight.detach()), want = full_tensor(before);
  EXPECT_EQ(whole.to_vector(), want.to_vector());
}

TEST(ShardCut, KeepsPartsOfWhatAnotherDimensionHasCut) {
  for (const TwoDims& kind : meshes_of({{1, 2}, {2, 2}, {3, 2}, {2, 3}, {4, 2}, {2, 4}}))
    on_ranks(kind.ranks(), [kind](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, kind.shape, kind.names);
      for (const std::int64_t rows : {1, 3, 7, 12, 16, 17, 22})
        for (const Placement& by :
             {Shard(0), Shard(1), StridedShard(0, 2), StridedShard(0, 3), StridedShard(0, 1, 2)})
          for (const bool matrix : {true, false}) {
            if (!matrix && by == Shard(1)) continue;
            const Tensor all = counting(world, matrix ? Shape{rows, 5} : Shape{rows});
            const Tensor before = distribute_tensor(all, mesh["tp"], by).detach();
            HoldsOne module(before.detach());
            fully_shard(module, mesh["dp"]);
            expect_cut(before, module,
                       str_cat(rows, " rows, ", by, " on ", mesh, matrix ? "" : " vector"));
          }
      co_return;
    });
}

TEST(ShardCut, SpreadsMatricesOverAllRanksAlsoWhereTheirRowsCannotBe) {
  on_ranks(6, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3, 2}, {"dp", "tp"});
    const Tensor all = counting(world, {7, 5});  // 4 and 3 rows: 2, 2, 0 and 1, 1, 1
    HoldsOne module(distribute_tensor(all, mesh["tp"], Shard(0)).detach());
    fully_shard(module, mesh["dp"]);
    EXPECT_EQ(module.weight.layout(), Layout(Shard(1), Shard(0)));
    HoldsOne even(distribute_tensor(counting(world, {17, 9}), mesh["tp"], Shard(0)).detach());
    fully_shard(even, mesh["dp"]);
    EXPECT_EQ(even.weight.layout(), Layout(StridedShard(0, 2), Shard(0)));
    EXPECT_EQ(even.weight.local_shape()[0],
              mesh.local_rank("tp") == 0 || mesh.local_rank("dp") < 2 ? 3 : 2);
    co_return;
  });
}

TEST(ShardCut, FollowsThePlacementOfEachParameter) {
  on_ranks(3, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3}, {"dp"});
    const auto [alone, sharded] = twins<Mlp>(world, 10, 7, 10);
    fully_shard(*sharded, mesh,
                {.shard_placement_fn = [](const Tensor& p) -> std::optional<Placement> {
                  if (p.ndim() == 1) return std::nullopt;
                  return p.size(0) == 10 ? Shard(1) : Shard(-1);
                }});
    EXPECT_EQ(sharded->net1.weight.layout(), Layout(Shard(1)));
    EXPECT_EQ(sharded->net2.weight.layout(), Layout(Shard(1)));
    EXPECT_EQ(sharded->net2.weight.local_shape(), (Shape{10, world.rank() == 2 ? 1 : 3}));
    EXPECT_EQ(sharded->net1.bias.layout(), Layout(Shard(0)));
    Task<void> alike = expect_as_on_one_device(world, *sharded, *alone, {world.rank(), 3}, 10);
    co_await std::move(alike);
  });
}

TEST(ShardCut, RefusesPlacementsThatNoLayoutHas) {
  on_ranks(6, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3, 2}, {"dp", "tp"});
    HoldsOne module(distribute_tensor(counting(world, {7, 5}), mesh["tp"], Shard(0)).detach());
    const auto shard = [&](Placement placement) {
      return [&, placement] {
        fully_shard(module, mesh["dp"],
                    {.shard_placement_fn = [placement](const Tensor&) { return placement; }});
      };
    };
    std::string text = error_of(shard(Shard(0)), ErrorKind::Unsupported);
    EXPECT_CONTAINS(text, "'weight' is f64[7,5] S(0) on tp=2");
    EXPECT_CONTAINS(text, "shard_placement_fn");
    for (const Placement& wrong :
         {Placement(Replicate()), Shard(2), Shard(-3), StridedShard(0, 2)}) {
      text = error_of(shard(wrong));
      EXPECT_CONTAINS(text, str_cat("gave ", wrong, " for parameter 'weight'"));
    }
    EXPECT_EQ(module.weight.mesh().ndim(), 1);
    co_return;
  });
}

// --- training ---

ParallelPlan uneven_plan() {
  ParallelPlan plan;
  plan["net1"] = ColwiseParallel{};
  plan["net2"] = RowwiseParallel{};
  return plan;
}

TEST(ShardCut, TrainsUnevenTensorParallelLayersAsOneDeviceDoes) {
  for (const TwoDims& kind : meshes_of({{1, 2}, {2, 2}, {3, 2}, {4, 2}, {2, 4}}))
    on_ranks(kind.ranks(), [kind](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, kind.shape, kind.names);
      for (const std::int64_t hidden : {7, 12, 17})
        for (const bool recomputes : {false, true}) {
          const auto [alone, sharded] = twins<Mlp>(world, 9, hidden, 9);
          co_await parallelize_module(*sharded, mesh["tp"], uneven_plan());
          fully_shard(*sharded, mesh["dp"]);
          sharded->set_recompute(recomputes);
          const DataRank data{mesh.local_rank("dp"), mesh.size("dp")};
          Task<void> alike = expect_as_on_one_device(world, *sharded, *alone, data, 9);
          co_await std::move(alike);
        }
    });
}

// DenseExperts [E, in, out], dense over all of them: with more ranks than experts, too.
struct DenseExperts : Module {
  DenseExperts(World& world, std::int64_t experts)
      : weight(random(world, {experts, 4, 4}).set_requires_grad(true)) {
    register_parameter("weight", weight);
  }
  Task<Tensor> run(Tensor x) override {
    const ImplicitReplication scope;
    const Tensor wide = expand(unsqueeze(x, 0), {weight.size(0), x.size(0), x.size(1)});
    const Tensor y = sum(matmul(wide, weight), Dims{0});
    co_return y.is_distributed() ? full_tensor(y) : y;
  }
  Tensor weight;
};

TEST(ShardCut, TrainsFewerExpertsThanRanks) {
  for (const TwoDims& kind : meshes_of({{2, 2}, {4, 2}, {2, 4}}))
    on_ranks(kind.ranks(), [kind](World& world) -> Task<void> {
      const DeviceMesh mesh = init_device_mesh(world, kind.shape, kind.names);
      for (const std::int64_t count : {1, 2, 3, 6}) {
        const auto [alone, sharded] = twins<DenseExperts>(world, count);
        sharded->weight =
            distribute_tensor(sharded->weight.detach(), mesh["tp"], Shard(0)).detach();
        sharded->weight.set_requires_grad(true);
        fully_shard(*sharded, mesh["dp"]);
        const DataRank data{mesh.local_rank("dp"), mesh.size("dp")};
        Task<void> alike = expect_as_on_one_device(world, *sharded, *alone, data, 4);
        co_await std::move(alike);
      }
    });
}

}  // namespace
}  // namespace coshard::testing
