// Recomputed modules whose parameters are collected (DataParallel, fully_shard) and used more than
// once: directly, where an operator writes the gradient in place, and through other operators.
#include <coshard/styles/fully_shard.h>
#include "tests/styles/sharded_layers.h"

namespace coshard::testing {
namespace {

enum class Use { Alone, TwiceInOne, TiedEmbedding, Scaled, Penalty, OneView, ThreeViews };
constexpr Use kUses[] = {Use::Alone,   Use::TwiceInOne, Use::TiedEmbedding, Use::Scaled,
                         Use::Penalty, Use::OneView,    Use::ThreeViews};

struct SharedWeight : Module {
  SharedWeight(World& world, Use how) : use(how) {
    w = (random(world, Shape{6, 6}) * 0.5).detach().set_requires_grad(true);
    register_parameter("w", w);
  }
  Task<Tensor> run(Tensor x) override {
    if (use == Use::TwiceInOne) co_return linear(w, w, {});
    Tensor h = tanh(use == Use::TiedEmbedding ? embedding(x, w) : linear(x, w, {}));
    if (use == Use::TiedEmbedding) co_return matmul(h, w.t());
    if (use == Use::Scaled) h = tanh(linear(h, w * 0.5, {}));
    if (use == Use::Penalty) h = h + sum(mul(w, w)) * 0.1;
    const int views = use == Use::OneView ? 1 : use == Use::ThreeViews ? 3 : 0;
    for (int i = 0; i < views; ++i) h = tanh(matmul(h, w.t()));
    co_return h;
  }
  Tensor w;
  Use use;
};

enum class Kept { Plain, InBuckets, InShards };

Task<std::vector<double>> gradient_of(World& world, Use use, Kept kept, bool recomputes,
                                      int backwards) {
  manual_seed(7);
  SharedWeight model(world, use);
  std::optional<DataParallel> replicas;
  if (kept == Kept::InBuckets) replicas.emplace(model.parameters(), dp_line(world), 0);
  if (kept == Kept::InShards) fully_shard(model, dp_line(world));
  model.set_recompute(recomputes);
  for (int i = 0; i < backwards; ++i) {
    if (replicas) replicas->set_requires_gradient_sync(i + 1 == backwards);
    const Tensor x = use == Use::TiedEmbedding ? randint(0, 6, Shape{4})
                                               : random(world, Shape{4, 6});  // on all ranks alike
    const Tensor y = co_await model.forward(x);
    co_await backward(sum(mul(y, y)));
  }
  const Tensor gradient = model.w.grad();
  co_return (gradient.is_distributed() ? full_tensor(gradient) : gradient).to_vector();
}

TEST(RecomputeCollected, HasAllTermsOfTheGradient) {
  on_ranks(2, [](World& world) -> Task<void> {
    for (const Use use : kUses)
      for (const int backwards : {1, 2}) {
        const auto want = co_await gradient_of(world, use, Kept::Plain, false, backwards);
        for (const Kept kept : {Kept::Plain, Kept::InBuckets, Kept::InShards})
          for (const bool recomputes : {false, true}) {
            const auto got = co_await gradient_of(world, use, kept, recomputes, backwards);
            SCOPED_TRACE(str_cat(static_cast<int>(use), ' ', static_cast<int>(kept), ' ',
                                 static_cast<int>(recomputes), ' ', backwards));
            expect_all_near(got, want);
          }
      }
  });
}

}  // namespace
}  // namespace coshard::testing
