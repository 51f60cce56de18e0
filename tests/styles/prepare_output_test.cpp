// What a module gives.
#include <coshard/styles/parallelize.h>
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

TEST(PrepareModuleOutput, CutsAReplicatedOutputWithoutCommunication) {  // A96
  on_ranks(4, [](World& world) -> Task<void> {
    nn::Identity identity;
    const DeviceMesh mesh = line(world);
    const PrepareModuleOutput style{.output_layouts = Replicate(),
                                    .desired_output_layouts = Shard(0)};
    co_await parallelize_module(identity, mesh, style);
    const Tensor x = random(world, Shape{8, 16});
    CountingObserver counter(world);
    const Tensor y = co_await identity.forward(x);
    EXPECT_EQ(take(counter), Issued{});
    EXPECT_FALSE(y.is_distributed());
    expect_close(y, part(world, x, 0));
    // A DTensor is judged by its own layout, whatever output_layouts says.
    const DTensor cut = distribute_tensor(x, mesh, Shard(1));
    counter.reset();
    const Tensor z = co_await identity.forward(cut);
    EXPECT_EQ(take(counter), Issued{.other = 1});
    expect_close(z, part(world, x, 0));
  });
}

TEST(PrepareModuleOutput, TreatsEachOutputAndRefusesOtherNumbers) {
  on_ranks(2, [](World& world) -> Task<void> {
    Pair pair;
    const DeviceMesh mesh = line(world);
    const PrepareModuleOutput style{.output_layouts = {std::nullopt, Shard(0)},
                                    .desired_output_layouts = {std::nullopt, Replicate()},
                                    .use_local_output = false};
    co_await parallelize_module(pair, mesh, style);
    const Tensor x = random(world, Shape{2, 4});
    Inputs inputs(x, x);
    const Outputs out = co_await pair.call(inputs);
    EXPECT_EQ(out[0].id(), x.id());
    EXPECT_EQ(out[1].layout(), Layout(Replicate()));
    EXPECT_EQ(out[1].shape(), (Shape{4, 4}));
    const std::string text = co_await error_of(discard(pair.forward(x)));
    EXPECT_CONTAINS(text, "1 outputs");
    const PrepareModuleOutput lengths{.output_layouts = Replicate(),
                                      .desired_output_layouts = {Replicate(), Shard(0)}};
    Pair another;
    const std::string other = co_await error_of(parallelize_module(another, mesh, lengths));
    EXPECT_CONTAINS(other, "same length");
  });
}

}  // namespace
}  // namespace coshard::testing
