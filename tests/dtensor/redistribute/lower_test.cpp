// Plans run by ranks, on real data: what the proof on index sets cannot see is how a step is bound
// to communicators, packed and unpacked.
#include <gtest/gtest.h>

#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/redistribute/layouts.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::allowed;
using testing::counting;
using testing::layouts_of;
using testing::on_ranks;

// A DTensor that holds `full`; the parts of a sum differ from rank to rank.
DTensor laid_out(World& world, const DeviceMesh& mesh, const Tensor& full, const Layout& layout) {
  DTensor x = distribute_tensor(full, mesh, partial_as_replicate(layout), std::nullopt);
  std::vector<double> values = x.to_vector();
  double factor = 1;
  for (int m = 0; m < layout.ndim(); ++m) {
    const int n = mesh.size(m);
    if (layout[m] == Partial()) factor *= mesh.local_rank(m) ? -0.5 : 1 + 0.5 * (n - 1);
    if (layout[m] == Partial(Reduce::Avg)) factor *= mesh.local_rank(m) ? -1 : 2 * n - 1;
    if (layout[m] == Partial(Reduce::Max) && mesh.local_rank(m)) factor *= factor > 0 ? 0.5 : 2;
  }
  for (double& value : values) value *= factor;
  return Tensor::from_values(world.device(), x.local_shape(), x.dtype(), values)
      .with_spec(make_spec(mesh, layout, full.shape()));
}

void run_pair(World& world, const DeviceMesh& mesh, const Tensor& full, const Layout& from,
              const Layout& to) {
  const DTensor x = laid_out(world, mesh, full, from);
  DTensor y = redistribute(x, to).tensor();
  EXPECT_EQ(y.layout(), to);
  if (to.has_partial()) y = redistribute(y, partial_as_replicate(to)).tensor();
  const DTensor want = distribute_tensor(full, mesh, partial_as_replicate(to), std::nullopt);
  EXPECT_EQ(y.to_vector(), want.to_vector()) << from << " to " << to << " of " << full;
}

struct Sample {
  std::vector<int> mesh_shape;
  std::vector<Shape> shapes;
  std::vector<Placement> placements;
  int every;  // of the pairs, the first of so many
};

Task<void> run_rank(World& world, Sample sample) {
  const DeviceMesh mesh = init_device_mesh(world, sample.mesh_shape);
  const auto layouts = layouts_of(mesh.ndim(), sample.placements);
  std::size_t turn = 0;
  for (const Layout& from : layouts) {
    for (const Layout& to : layouts) {
      if (!allowed(from, to) || turn++ % static_cast<std::size_t>(sample.every) != 0) continue;
      const Tensor full = counting(world, sample.shapes[turn % sample.shapes.size()]);
      run_pair(world, mesh, full, from, to);
    }
  }
  co_return;
}

void run_sample(const std::vector<int>& mesh_shape, const std::vector<Shape>& shapes,
                const std::vector<Placement>& placements, int every) {
  int ranks = 1;
  for (const int size : mesh_shape) ranks *= size;
  on_ranks(ranks, [&](World& world) {
    return run_rank(world, Sample{mesh_shape, shapes, placements, every});
  });
}

TEST(RedistributeRun, StridedShardsGoAnywhere) {
  run_sample({3}, {{7, 2}, {2, 12}, {0, 3}},
             {Replicate(), Shard(0), Shard(1), StridedShard(0, 2), StridedShard(1, 3),
              StridedShard(1, 1, 2), Partial()},
             1);
}

TEST(RedistributeRun, TwoMeshDimensions) {
  const std::vector<Placement> all{Replicate(),        Shard(0),  Shard(1),
                                   StridedShard(0, 2), Partial(), Partial(Reduce::Max)};
  run_sample({2, 2}, {{5, 3}, {4, 4}, {1, 2}}, all, 2);
  run_sample({2, 3}, {{7, 5}, {6, 6}, {3, 0}}, all, 3);
}

TEST(RedistributeRun, ThreeMeshDimensions) {
  run_sample({2, 2, 2}, {{5, 3, 2}, {4, 4, 4}},
             {Replicate(), Shard(0), Shard(2), Partial(), Partial(Reduce::Avg)}, 29);
}

TEST(RedistributeRun, ASourceOfAnyStridesIsReadInPlace) {
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2, 2});
    const Tensor full = counting(world, {6, 5});
    const DTensor x = distribute_tensor(full, mesh, Layout(Shard(0), Shard(1)), std::nullopt);
    // The same elements, stored column by column.
    const Shape local = x.local_shape();
    std::vector<double> columns;
    const std::vector<double> rows = x.to_vector();
    for (std::int64_t c = 0; c < local[1]; ++c)
      for (std::int64_t r = 0; r < local[0]; ++r)
        columns.push_back(rows[static_cast<std::size_t>(r * local[1] + c)]);
    const Tensor stored =
        Tensor::from_values(world.device(), {local[1], local[0]}, x.dtype(), columns);
    const DTensor strided = stored.view_as(local, Strides{1, local[0]}, 0, x.spec());
    for (const Layout& to : {Layout(Shard(1), Shard(0)), Layout(Replicate(), Replicate()),
                             Layout(Replicate(), Shard(1)), Layout(Shard(0), StridedShard(1, 2))})
      EXPECT_EQ(redistribute(strided, to).tensor().to_vector(),
                redistribute(x, to).tensor().to_vector())
          << to;
    co_return;
  });
}

TEST(RedistributeRun, APackedResultIsInFlightUntilItIsAwaited) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor full = counting(world, {9, 4});
    const DTensor x = distribute_tensor(full, mesh, StridedShard(0, 2), std::nullopt);
    Redistribution r = x.redistribute(Replicate());
    EXPECT_TRUE(r.tensor().in_flight());
    const auto part = co_await r.next_shard();  // it comes as one
    EXPECT_TRUE(part.has_value());
    EXPECT_EQ(part->tensor.to_vector(), full.to_vector());
    { const Redistribution dropped = x.redistribute(Shard(0)); }
    const DTensor y = co_await r;
    EXPECT_EQ(y.to_vector(), full.to_vector());
  });
}

}  // namespace
}  // namespace coshard
