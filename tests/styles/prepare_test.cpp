#include <coshard/styles/parallelize.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

// Takes one of its columns for itself, as an expert does: the gradient of its input is Partial.
struct OwnColumn : Module {
  explicit OwnColumn(World& world) : rank(world.rank()) {}
  Task<Tensor> run(Tensor x) override { co_return slice(x, 1, rank, rank + 1); }
  int rank;
};

// A plain input that is the same on all ranks, of which each has a part of the gradient.
Task<Tensor> gradient_of_plain(World& world, const ColwiseParallel& style) {
  auto [plain, linear] = twins<nn::Linear>(4, 6, world, kF64);
  const DeviceMesh mesh = line(world);
  co_await parallelize_module(*linear, mesh, style);
  Tensor x = ones(world.device(), {3, 4}, DType::F64);
  x.set_requires_grad(true);
  Task<Tensor> forward = linear->forward(x);
  const Tensor y = co_await std::move(forward);
  const Tensor loss = sum(y);
  co_await backward(loss);
  co_return x.grad();
}

TEST(Prepare, GradientPlacementsOfLocalInputsAndOutputsAreTakenAsGiven) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = line(world);
    DTensor x = ones(mesh, Replicate(), {3, 2}, DType::F64);
    x.set_requires_grad(true);
    OwnColumn column(world);
    const PrepareModuleInput style{.input_layouts = Replicate(),
                                   .desired_input_layouts = Replicate(),
                                   .use_local_output = true,
                                   .local_output_grad_placements = Partial()};
    co_await parallelize_module(column, mesh, style);
    Task<Tensor> forward = column.forward(x);
    const Tensor y = co_await std::move(forward);
    const Tensor loss = sum(y);
    co_await backward(loss);
    EXPECT_EQ(full_tensor(x.grad()).to_vector(), std::vector<double>(6, 1));
  });
}

TEST(Colwise, GradientPlacementsOfItsPlainInputLeaveTheSumToTheUser) {
  on_ranks(2, [](World& world) -> Task<void> {
    Task<Tensor> summed = gradient_of_plain(world, {});
    const Tensor whole = co_await std::move(summed);
    const ColwiseParallel partial{.local_input_grad_placements = Partial()};
    Task<Tensor> unsummed = gradient_of_plain(world, partial);
    const Tensor mine = co_await std::move(unsummed);
    expect_close(from_local(mine, line(world), Partial()), whole);
    EXPECT_NE(mine.to_vector(), whole.to_vector());
  });
}

TEST(Prepare, GradientPlacementsNeedALayoutEach) {
  const PrepareModuleInput style{.input_layouts = Replicate(),
                                 .desired_input_layouts = Replicate(),
                                 .local_output_grad_placements = {Partial(), Partial()}};
  EXPECT_THROW(style.check(), Error);
  const PrepareModuleOutput out{.output_layouts = Replicate(),
                                .desired_output_layouts = Replicate(),
                                .local_input_grad_placements = {Partial(), Partial()}};
  EXPECT_THROW(out.check(), Error);
  EXPECT_CONTAINS(cat(style), "local_output_grad_placements=(P(sum), P(sum))");
}

}  // namespace
}  // namespace coshard::testing
