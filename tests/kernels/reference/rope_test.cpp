// The gradient of a rotation.
#include <functional>

#include "kernels/reference/reference.h"
#include "tests/kernels/reference/slopes.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::reference {
namespace {

using namespace testing;

TEST(Gradients, OfRopeAreItsInverse) {
  Data x = Data::normal(kF64, 2 * 3 * 2 * 6, 1);
  const std::vector<std::int64_t> shape = {2, 3, 2, 6};
  Data dy = Data::normal(kF64, 72, 2);
  Data y(kF64, 72);
  Data dx(kF64, 72);
  run(Rope{dx.view(shape), dy.view(shape), 4, 100, true});
  const auto forward = [&] { run(Rope{y.view(shape), x.view(shape), 4, 100, false}); };
  expect_gradient(x, dx, dy, y, forward, "x");
}

TEST(Gradients, OfRopeByATableAreItsTranspose) {
  const RopeTable table{{1, 0.5F, 0.01F}, 1.5F};
  Data x = Data::normal(kF64, 2 * 3 * 2 * 6, 1);
  const std::vector<std::int64_t> shape = {2, 3, 2, 6};
  Data dy = Data::normal(kF64, 72, 2);
  Data y(kF64, 72);
  Data dx(kF64, 72);
  run(Rope{dx.view(shape), dy.view(shape), 4, 0, true, &table});
  const auto forward = [&] { run(Rope{y.view(shape), x.view(shape), 4, 0, false, &table}); };
  expect_gradient(x, dx, dy, y, forward, "x");
}

}  // namespace
}  // namespace coshard::kernels::reference
