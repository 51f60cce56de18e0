#pragma once
// Views of DTensors: the layout, the values and the collectives that are expected.
#include <gtest/gtest.h>

#include "tests/dtensor/ops/expect.h"

namespace coshard::testing {

using ViewFunction = std::function<Tensor(const Tensor&)>;

// `shape` in layout `from` through f gives layout `to`, the plain tensor's values, and issues
// `collectives`.
struct ViewExpectation {
  const char* what;
  Shape shape;
  Layout from;
  ViewFunction f;
  std::optional<Layout> to;
  int collectives = 0;
};

inline void check_view(World& world, const DeviceMesh& mesh, const ViewExpectation& e) {
  const Tensor plain = counting(world, e.shape);
  const DTensor x = distribute_tensor(plain, mesh, e.from, std::nullopt);
  CountingObserver seen(world);
  const DTensor y = e.f(x);
  EXPECT_EQ(seen.total(), e.collectives) << e.what << " of " << x;
  if (e.to) {
    EXPECT_EQ(y.layout(), *e.to) << e.what << " of " << x;
  }
  EXPECT_EQ(full_tensor(y).to_vector(), e.f(plain).to_vector()) << e.what << " of " << x;
}

inline void check_views(int ranks, const std::vector<ViewExpectation>& all) {
  struct Body {
    static Task<void> run(World& world, const std::vector<ViewExpectation>& all) {
      const DeviceMesh mesh = init_device_mesh(world, {world.size()}, {"tp"});
      for (const ViewExpectation& e : all) check_view(world, mesh, e);
      co_return;
    }
  };
  on_ranks(ranks, [&all](World& world) { return Body::run(world, all); });
}

}  // namespace coshard::testing
