#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/distribute/local_map.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

#include <gtest/gtest.h>

namespace coshard::testing {
namespace {

std::vector<Tensor> local_matmul(std::span<const Tensor> in) { return {matmul(in[0], in[1])}; }

Tensor normal(World& world, const Shape& shape) { return randn(world.device(), shape, DType::F64); }

void expect_equal(const Tensor& got, const Tensor& want) {
  const Tensor full = got.is_distributed() ? full_tensor(got.detach()) : got;
  ASSERT_EQ(full.shape(), want.shape());
  const std::vector<double> a = full.to_vector(), b = want.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-11);
}

template <class Call>
std::string local_map_refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(LocalMap, RunsOnLocalPartsAndReducesInside) {  // A163
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = normal(world, {4, 6}), w = normal(world, {6, 5});
    const Tensor in[] = {distribute_tensor(x, mesh, Shard(1)),
                         distribute_tensor(w, mesh, Shard(0))};
    const auto reduced = [&](std::span<const Tensor> local) -> std::vector<Tensor> {
      const Tensor terms = from_local(matmul(local[0], local[1]), mesh, Partial());
      return {to_local(redistribute(terms, Replicate()).tensor())};
    };
    LocalMapOptions options;
    options.out_placements = {Layout(Replicate())};
    options.in_placements = OptionalLayouts{Layout(Shard(1)), Layout(Shard(0))};
    CountingObserver counter(world);
    const Tensor y = local_map(reduced, in, options).front();
    EXPECT_EQ(counter.count(CollectiveKind::AllReduce), 1);
    EXPECT_EQ(counter.total(), 1);
    EXPECT_EQ(y.layout(), Layout(Replicate()));
    expect_equal(y, matmul(x, w));
    co_return;
  });
}

TEST(LocalMap, LeavesPlainTensorsPlain) {  // A163
  on_ranks(2, [](World& world) -> Task<void> {
    const Tensor in[] = {normal(world, {2, 3}), normal(world, {3, 2})};
    LocalMapOptions options;
    options.out_placements = {Layout(Replicate())};
    const Tensor y = local_map(local_matmul, in, options).front();
    EXPECT_FALSE(y.is_distributed());
    expect_equal(y, matmul(in[0], in[1]));
    co_return;
  });
}

TEST(LocalMap, RedistributesInputsOnlyWhenAskedTo) {  // A164
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = normal(world, {4, 6}), w = normal(world, {6, 4});
    const Tensor in[] = {distribute_tensor(x, mesh, Shard(0)),
                         distribute_tensor(w, mesh, Shard(1))};
    LocalMapOptions options;
    options.out_placements = {Layout(Partial())};
    options.in_placements = OptionalLayouts{Layout(Shard(1)), Layout(Shard(0))};
    const std::string text = local_map_refusal([&] { local_map(local_matmul, in, options); });
    EXPECT_NE(text.find("redistribute_inputs"), std::string::npos) << text;
    options.redistribute_inputs = true;
    CountingObserver counter(world);
    const Tensor y = local_map(local_matmul, in, options).front();
    EXPECT_EQ(counter.total(), 2);
    const Tensor whole = redistribute(y, Replicate()).tensor();
    EXPECT_EQ(counter.total(), 3);
    expect_equal(whole, matmul(x, w));
    co_return;
  });
}

Task<void> expect_gradients(World& world, bool redistributed) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  Tensor x = normal(world, {4, 6}), w = normal(world, {6, 4});
  const Tensor seed = normal(world, {4, 4});
  DTensor dx = distribute_tensor(x, mesh, redistributed ? Shard(1) : Shard(0));
  DTensor dw = distribute_tensor(w, mesh, Replicate());
  dx.set_requires_grad(true);
  dw.set_requires_grad(true);
  const Tensor in[] = {dx, dw};
  LocalMapOptions options;
  options.out_placements = {Layout(Shard(0))};
  options.in_placements = OptionalLayouts{Layout(Shard(0)), Layout(Replicate())};
  options.in_grad_placements = OptionalLayouts{Layout(Shard(0)), Layout(Partial())};
  options.redistribute_inputs = redistributed;
  const Tensor y = local_map(local_matmul, in, options).front();
  run_backward(y, distribute_tensor(seed, mesh, Shard(0)));
  x.set_requires_grad(true);
  w.set_requires_grad(true);
  run_backward(matmul(x, w), seed);
  EXPECT_EQ(dw.grad().layout(), Layout(Partial()));
  EXPECT_EQ(dx.grad().layout(), dx.layout());
  expect_equal(dx.grad(), x.grad());
  expect_equal(dw.grad(), w.grad());
  co_return;
}

TEST(LocalMap, ReadsGradientsAsItIsTold) {  // A165
  for (const bool redistributed : {false, true})
    on_ranks(2, [redistributed](World& world) { return expect_gradients(world, redistributed); });
}

TEST(LocalMap, TakesInputsOfSeveralMeshes) {  // A166
  on_ranks(4, [](World& world) -> Task<void> {
    const DeviceMesh square = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const DeviceMesh line = init_device_mesh(world, {4}, {"all"});
    const Tensor x = normal(world, {4, 6}), w = normal(world, {6, 4});
    const Tensor in[] = {distribute_tensor(x, square, Layout(Shard(0), Shard(0))),
                         distribute_tensor(w, line, Replicate())};
    LocalMapOptions options;
    options.out_placements = {Layout(Shard(0))};
    options.device_mesh = line;
    const Tensor y = local_map(local_matmul, in, options).front();
    EXPECT_EQ(y.mesh(), line);
    expect_equal(y, matmul(x, w));
    co_return;
  });
}

std::vector<Tensor> tripled(std::span<const Tensor> in) { return {in[0] * 3.0}; }
std::vector<Tensor> first_row(std::span<const Tensor> in) { return {slice(in[0], 0, 0, 1)}; }
std::vector<Tensor> turned_row_sums(std::span<const Tensor> in) {
  return {transpose(sum(in[0], 1, true), 0, 1)};
}

TEST(LocalMap, UnevenShardsKeepTheirLogicalSize) {
  for (const int ranks : {2, 3})
    for (const int rows : {2, 4, 5, 7})
      on_ranks(ranks, [=](World& world) -> Task<void> {
        const DeviceMesh mesh = init_device_mesh(world, {ranks}, {"tp"});
        const Tensor x = normal(world, {rows, 2});
        DTensor cut = distribute_tensor(x, mesh, Shard(0));
        cut.set_requires_grad(true);
        const Tensor in[] = {cut};
        LocalMapOptions options;
        options.out_placements = {Layout(Shard(0))};
        const Tensor y = local_map(tripled, in, options).front();
        EXPECT_EQ(y.shape(), (Shape{rows, 2}));
        EXPECT_EQ(y.layout(), Layout(Shard(0)));
        expect_equal(y, x * 3.0);
        run_backward(sum(y));
        expect_equal(cut.grad(), ones_like(x) * 3.0);
        options.out_placements = {Layout(Shard(1))};
        const Tensor sums = local_map(turned_row_sums, in, options).front();
        expect_equal(sums, transpose(sum(x, 1, true), 0, 1));
        options.out_placements = {Layout(Shard(0))};
        if (rows % ranks == 0) {
          const Tensor heads = local_map(first_row, in, options).front();
          EXPECT_EQ(heads.shape(), (Shape{ranks, 2}));
        }
        co_return;
      });
}

TEST(LocalMap, UnevenShardsOfAnotherSizeAreSaid) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const Tensor x = normal(world, {5, 2});
    const Tensor in[] = {distribute_tensor(x, mesh, Shard(0))};
    LocalMapOptions options;
    options.out_placements = {Layout(Shard(0))};
    options.out_shapes = {Shape{6, 2}};
    const std::string text = local_map_refusal([&] { local_map(tripled, in, options); });
    const bool fits = world.rank() == 0;  // 3 rows are its shard of 6, too
    EXPECT_EQ(text.find("out_shapes") != std::string::npos, !fits) << text;
    options.out_shapes = {Shape{6, 2}, Shape{6, 2}};
    const std::string count = local_map_refusal([&] { local_map(tripled, in, options); });
    EXPECT_NE(count.find("out_shapes has 2"), std::string::npos) << count;
    options.out_shapes = {};
    const Tensor both[] = {in[0], distribute_tensor(normal(world, {6, 2}), mesh, Shard(0))};
    const std::string unsure = local_map_refusal([&] { local_map(tripled, both, options); });
    EXPECT_EQ(unsure.find("size 5 or 6") != std::string::npos, world.rank() == 0) << unsure;
    co_return;
  });
}

TEST(LocalMap, RefusesWhatDoesNotFit) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    const DTensor x = distribute_tensor(normal(world, {4, 4}), mesh, Shard(0));
    const Tensor in[] = {x, x};
    LocalMapOptions options;
    const auto text = [&] {
      return local_map_refusal([&] { local_map(local_matmul, in, options); });
    };
    options.in_placements = OptionalLayouts{Layout(Shard(0))};
    EXPECT_NE(text().find("2 inputs, but 1 in_placements"), std::string::npos) << text();
    options.in_placements = OptionalLayouts{Layout(Shard(0)), std::nullopt};
    EXPECT_NE(text().find("in_placements has no layout"), std::string::npos) << text();
    const auto two = [](std::span<const Tensor> local) -> std::vector<Tensor> {
      return {local[0], local[1]};
    };
    options = {};
    options.out_placements = {Layout(Shard(0))};
    const std::string count = local_map_refusal([&] { local_map(two, in, options); });
    EXPECT_NE(count.find("2 outputs, but out_placements has 1"), std::string::npos) << count;
    co_return;
  });
}

}  // namespace
}  // namespace coshard::testing
