// Tensors from any layout on any mesh into any other, bit for bit.
#include <random>

#include "tests/dtensor/checkpoint/saved_states.h"

namespace coshard::testing {
namespace {

TEST(CopyState, S24MovesDrawnShapesBetweenDrawnLayouts) {
  for (int seed = 0; seed < 60; ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto draw = [&](int from, int to) {
      return std::uniform_int_distribution<int>(from, to)(random);
    };
    const int ranks = draw(1, 4);
    on_ranks(ranks, [&, state = random](World& world) -> Task<void> {
      std::mt19937 same = state;  // all ranks draw alike
      const auto next = [&](int from, int to) {
        return std::uniform_int_distribution<int>(from, to)(same);
      };
      State from, to, want;
      const int tensors = next(1, 5);
      for (int i = 0; i < tensors; ++i) {
        Shape shape;
        for (int d = next(0, 3); d > 0; --d) shape.push_back(next(0, 7));
        const DType dtypes[] = {DType::F32, DType::BF16, DType::F64, DType::I64, DType::I32};
        const DType dtype = dtypes[next(0, 4)];
        const auto mesh_and_layout = [&](bool may_sum) {
          const bool square = ranks == 4 && next(0, 1) == 1;
          const DeviceMesh mesh = square ? init_device_mesh(world, {2, 2}, {"a", "b"})
                                         : init_device_mesh(world, {ranks}, {"a"});
          Layout layout;
          for (int m = 0; m < mesh.ndim(); ++m) {
            const int kind = next(0, 3), dim = next(0, std::max<int>(0, std::ssize(shape) - 1));
            if (kind == 0 || shape.empty())
              layout.push_back(may_sum && is_floating(dtype) && next(0, 2) == 0
                                   ? Placement(Partial())
                                   : Placement(Replicate()));
            else if (kind == 1)
              layout.push_back(StridedShard(dim, next(2, 3)));
            else
              layout.push_back(Shard(dim));
          }
          return std::pair(mesh, layout);
        };
        const auto [source_mesh, source] = mesh_and_layout(true);
        const auto [target_mesh, target] = mesh_and_layout(false);
        const Tensor values = counting(world, shape, dtype),
                     none = counting(world, shape, dtype, 0);
        const std::string name = std::to_string(i);
        from.add(name, next(0, 4) == 0 ? values : distribute_tensor(values, source_mesh, source));
        const bool plain = next(0, 4) == 0;
        to.add(name, plain ? none : distribute_tensor(none, target_mesh, target));
        want.add(name, plain ? values : distribute_tensor(values, target_mesh, target));
      }
      Task<LoadReport> copied = copy_state(from, to);
      co_await std::move(copied);
      for (const NamedState& entry : want)
        EXPECT_EQ(entry.tensor.raw_local().to_vector(), to[entry.name].raw_local().to_vector())
            << "seed " << seed << ": " << from[entry.name] << " to " << entry.tensor;
    });
  }
}

TEST(CopyState, S32TiedTensorsMayBeThereTwiceIfTheyAreEqual) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"a"});
    const auto state_of = [&](double w, double v) {
      State state;
      state.add("w", full(world.device(), {3}, w)).add("v", full(world.device(), {3}, v));
      return state;
    };
    State to;
    to.add("w", distribute_tensor(zeros(world.device(), {3}), mesh, Shard(0)));
    to.tie("v", "w");
    Task<LoadReport> equal = copy_state(state_of(1, 1), to);
    co_await std::move(equal);
    EXPECT_EQ(full_tensor(to["v"]).to_vector(), (std::vector<double>{1, 1, 1}));
    std::string said;
    try {
      Task<LoadReport> differs = copy_state(state_of(2, 3), to);
      co_await std::move(differs);
    } catch (const Error& error) {
      said = error.message();
    }
    EXPECT_CONTAINS(said, "'v' has other values");
  });
}

TEST(CopyState, NamesWhatDoesNotFit) {
  alone([](World& world) -> Task<void> {
    State from, to;
    from.add("a", counting(world, {3})).add("b", counting(world, {3}, DType::F64));
    to.add("a", counting(world, {4}))
        .add("b", counting(world, {3}, DType::F32))
        .add("c", counting(world, {1}));
    std::string text;
    try {
      Task<LoadReport> copied = copy_state(from, to);
      co_await std::move(copied);
    } catch (const Error& error) {
      text = error.message();
    }
    expect_names(text, {"'a' has shape [3] there and [4] here", "'b' is f64 there and f32 here",
                        "lacks 'c'"});
    const DeviceMesh mesh = init_device_mesh(world, {1}, {"a"});
    State sum;
    sum.add("a", distribute_tensor(counting(world, {3}), mesh, Partial()));
    LoadOptions options;
    options.strict = false;
    std::string partial;
    try {
      Task<LoadReport> copied = copy_state(from, sum, options);
      co_await std::move(copied);
    } catch (const Error& error) {
      partial = error.message();
    }
    expect_names(partial, {"sum over ranks"});
  });
}

}  // namespace
}  // namespace coshard::testing
