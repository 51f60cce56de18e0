// Sharded models of which parts are frozen, drawn anew for every step: gradients are those of the
// plain model averaged over the replicas, and what is frozen has none.
#include <random>

#include "tests/styles/sharded_layers.h"

namespace coshard::testing {
namespace {

struct Drawn {
  bool reshard, wants_input;
  Overlap overlap;
  int parts;
  std::vector<bool> recomputes, frozen;  // by layer, by parameter
};

Drawn draw(std::uint64_t seed, std::size_t layers, std::size_t parameters) {
  std::mt19937_64 generator(seed);
  const auto one_of = [&](int most) { return static_cast<int>(generator() % most); };
  Drawn drawn{one_of(3) > 0,
              one_of(2) == 0,
              one_of(3) > 0 ? Overlap::Auto : Overlap::Off,
              1 + one_of(2),
              {},
              {}};
  for (std::size_t i = 0; i < layers; ++i) drawn.recomputes.push_back(one_of(2) == 0);
  const int share = 1 + one_of(4);  // of those that are frozen
  for (std::size_t i = 0; i < parameters; ++i) drawn.frozen.push_back(one_of(5) < share);
  return drawn;
}

Task<Tensor> backward_of(Layers& model, const Drawn& drawn, Tensor x) {
  std::vector<Tensor> parameters = model.parameters();
  model.zero_grad();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    parameters[i].set_requires_grad(!drawn.frozen[i]);
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    model.layers[i].set_recompute(drawn.recomputes[i]);
  x = x.detach().set_requires_grad(drawn.wants_input);
  Task<Tensor> forward = drawn.parts == 1 ? model.forward(x) : woven(model, drawn.parts).forward(x);
  const Tensor y = co_await std::move(forward);
  if (y.requires_grad()) co_await backward(mean(mul(y, y)));
  co_return x.grad();
}

Task<void> compare(World& world, std::uint64_t seed) {
  const auto [plain, sharded] = twins<Layers>(world);
  const std::size_t count = plain->parameters().size();
  Drawn drawn = draw(seed, 3, count);
  shard_layers(*sharded, dp_line(world),
               {.reshard_after_forward = drawn.reshard, .overlap = drawn.overlap});
  for (int step = 0; step < 3; ++step) {
    drawn = draw(seed * 3 + static_cast<std::uint64_t>(step), 3, count);
    const Tensor x = rows_of(world, step, 0);
    const Tensor want_input = co_await backward_of(*plain, drawn, x);
    const Tensor got_input = co_await backward_of(*sharded, drawn, x);
    EXPECT_EQ(got_input.defined(), want_input.defined());
    if (want_input.defined()) expect_close(got_input, want_input);
    const auto want = plain->named_parameters(), got = sharded->named_parameters();
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor own = want[i].slot->grad(), shard = got[i].slot->grad();
      EXPECT_EQ(shard.defined(), own.defined()) << want[i].name;
      if (!own.defined() || !shard.defined()) continue;
      const DTensor mean = from_local(own, dp_line(world), Partial(Reduce::Avg));
      expect_close(full_tensor(shard), full_tensor(mean.redistribute(Replicate()).tensor()));
    }
  }
}

TEST(FrozenShards, HaveNoGradientsAndOthersHaveTheirs) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    on_ranks(2 + static_cast<int>(seed % 2),
             [seed](World& world) -> Task<void> { return compare(world, seed); });
  }
}

}  // namespace
}  // namespace coshard::testing
