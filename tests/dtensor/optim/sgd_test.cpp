// SGD against its formula.
#include <gtest/gtest.h>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/optimizer.h>
#include "tests/dtensor/optim/three_steps.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::expect_formula;
using testing::kScales;
using testing::on_ranks;
using testing::three_steps;

std::vector<double> sgd_by_hand(std::vector<double> p, SGDOptions o) {
  std::vector<double> buffer(p.size());
  for (int step = 1; step <= 3; ++step) {
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double sign = o.maximize ? -1 : 1;
      const double g =
          sign * kScales[step - 1] * static_cast<double>(i + 1) + o.weight_decay * p[i];
      buffer[i] = step == 1 ? g : o.momentum * buffer[i] + (1 - o.dampening) * g;
      const double with_momentum = o.nesterov ? g + o.momentum * buffer[i] : buffer[i];
      p[i] -= o.lr * (o.momentum != 0 ? with_momentum : g);
    }
  }
  return p;
}

TEST(SGD, FollowsTheFormulaWithMomentumNesterovDampeningAndMaximize) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (int variant = 0; variant < 5; ++variant) {
      DTensor x = distribute_tensor(counting(world, {5, 2}), mesh, Shard(0), std::nullopt);
      x.set_requires_grad(true);
      const SGDOptions options{.lr = 0.1,
                               .momentum = variant > 0 ? 0.9 : 0,
                               .weight_decay = 0.01,
                               .dampening = variant == 3 ? 0.4 : 0,
                               .nesterov = variant == 2,
                               .maximize = variant == 4};
      SGD optimizer({x}, options);
      Task<void> steps = three_steps(world, optimizer, x);
      co_await std::move(steps);
      expect_formula(full_tensor(x).to_vector(),
                     sgd_by_hand(counting(world, {5, 2}).to_vector(), options));
    }
  });
}

}  // namespace
}  // namespace coshard
