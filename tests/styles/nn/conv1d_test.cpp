#include <coshard/styles/nn/conv1d.h>

#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

constexpr nn::Conv1DOptions kParts{.dtype = DType::F64, .init_std = 0.5, .parts = 3};

TEST(Conv1D, MultipliesByColumnsAndAddsTheBias) {
  on_ranks(1, [](World& world) -> Task<void> {
    const nn::Conv1DOptions options{.dtype = DType::F64, .init_std = 0.5};
    nn::Conv1D layer(3, 5, world, options);
    EXPECT_EQ(layer.weight.shape(), (Shape{3, 5}));
    EXPECT_EQ(layer.bias.to_vector(), std::vector<double>(5, 0));
    const Tensor x = random(world, Shape{2, 4, 3});
    Tensor y = co_await layer.forward(x);
    expect_close(y, matmul(x, layer.weight.detach()));
    EXPECT_THROW(nn::Conv1D(3, 4, world, kParts), Error);
    EXPECT_THROW(nn::Conv1D(0, 4, world), Error);
  });
}

// Columns of each part are cut, in whole groups of 2, and multiplied by rows in the same places.
TEST(Conv1D, IsCutWithinItsPartsInWholeGroups) {
  for (const int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [](World& world) -> Task<void> {
      nn::Conv1DOptions columns = kParts, rows{.dtype = DType::F64, .init_std = 0.5};
      columns.out_groups = rows.in_groups = {2, 2};
      auto [plain, cut] = twins<nn::Conv1D>(4, 30, world, columns);
      auto [plain_rows, cut_rows] = twins<nn::Conv1D>(10, 4, world, rows);
      const DeviceMesh mesh = line(world);
      Task<void> parallel =
          parallelize_module(*cut, mesh, ColwiseParallel{.output_layouts = StridedShard(-1, 3)});
      co_await std::move(parallel);
      parallel = parallelize_module(*cut_rows, mesh, RowwiseParallel{});
      co_await std::move(parallel);
      const Tensor x = random(world, Shape{2, 3, 4});
      Tensor wide = co_await cut->forward(x), all = co_await plain->forward(x);
      const std::int64_t own = wide.size(2) / 3;
      EXPECT_EQ(own, chunk_of(10, world.size(), world.rank(), 2).size);
      const auto product = [](const Tensor& y) {
        const std::int64_t width = y.size(2) / 3;
        return narrow(y, 2, 0, width) * narrow(y, 2, width, width) + narrow(y, 2, 2 * width, width);
      };
      const Tensor got = co_await cut_rows->forward(product(wide));
      const Tensor want = co_await plain_rows->forward(product(all));
      expect_close(got, want);
      co_await backward(sum(got * got));
      co_await backward(sum(want * want));
      expect_close(cut->weight.grad(), plain->weight.grad());
      expect_close(cut->bias.grad(), plain->bias.grad());
      expect_close(cut_rows->weight.grad(), plain_rows->weight.grad());
      expect_close(cut_rows->bias.grad(), plain_rows->bias.grad());
    });
}

}  // namespace
}  // namespace coshard::testing
