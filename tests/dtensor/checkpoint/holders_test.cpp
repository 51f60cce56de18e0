// Each writer gets each byte of a tensor once, whatever meshes the ranks have it on.
#include "dtensor/checkpoint/holders.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace coshard::testing {
namespace {

// On every rank: the parts that a writer is given are all of the tensor, without a byte twice.
void expect_whole_for_all(std::vector<HeldTensor>& held, int ranks, std::int64_t bytes) {
  for (HeldTensor& tensor : held)
    for (int writer = 0; writer < ranks; ++writer) {
      std::vector<int> times(static_cast<std::size_t>(bytes));
      for (int rank = 0; rank < ranks; ++rank)
        if (tensor.gives(rank, writer))
          tensor.part(rank).each_run(0, bytes, [&](std::int64_t at, std::int64_t size) {
            for (std::int64_t i = at; i < at + size; ++i) ++times[static_cast<std::size_t>(i)];
          });
      EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(bytes), 1)) << "writer " << writer;
    }
}

TEST(Holders, GiveEachWriterEachByteOnce) {
  on_ranks(6, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {3, 2}, {"dp", "tp"});
    const Tensor x = counting(world, {5, 4}, DType::F32);
    // On slices, each rank knows its own slice alone; one rank is outside of the last mesh.
    const std::vector<int> some{4, 1, 3};
    const DeviceMesh few = DeviceMesh::from_ranks(world, some, {3}, {"few"});
    std::vector<Tensor> tensors{x,
                                distribute_tensor(x, mesh, {Shard(0), Shard(1)}),
                                distribute_tensor(x, mesh, {Replicate(), Shard(0)}),
                                distribute_tensor(x, mesh["dp"], Shard(0)),
                                distribute_tensor(x, mesh["tp"], Shard(1)),
                                distribute_tensor(x, mesh["tp"], Replicate()),
                                distribute_tensor(x, few, Shard(0)),
                                distribute_tensor(x, few, Replicate())};
    Task<std::vector<HeldTensor>> told =
        holders_of(world, tensors, std::vector<DType>(tensors.size(), DType::F32));
    std::vector<HeldTensor> held = co_await std::move(told);
    expect_whole_for_all(held, world.size(), x.numel() * 4);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(held[i].part(world.rank()).size(), tensors[i].local_numel() * 4) << tensors[i];
  });
}

}  // namespace
}  // namespace coshard::testing
