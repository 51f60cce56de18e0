#pragma once
// What tests of operators share: small inputs, and what is expected of results.
#include <gtest/gtest.h>

#include <cmath>

#include <coshard/dtensor/ops/ops.h>
#include "tests/support/ranks.h"

namespace coshard::testing {

using Values = std::vector<double>;

inline Tensor values(World& world, const Shape& shape, const Values& v, DType dtype = DType::F64) {
  return Tensor::from_values(world.device(), shape, dtype, v);
}

// Every value once, in no order.
inline Tensor shuffled(World& world, const Shape& shape, DType dtype = DType::F64) {
  Values v(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>((i * 7 + 3) % 31) - 9;
  return values(world, shape, v, dtype);
}

inline DTensor placed(World& world, const DeviceMesh& mesh, const Shape& shape, Layout layout,
                      DType dtype = DType::F64) {
  return distribute_tensor(counting(world, shape, dtype), mesh, layout, std::nullopt);
}

inline void expect_near(const Values& got, const Values& want, double tolerance = 1e-10) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}
inline void expect_near(const Tensor& got, const Values& want, double tolerance = 1e-10) {
  expect_near(got.to_vector(), want, tolerance);
}

inline void expect_values(const Tensor& got, const Tensor& want, const char* name) {
  EXPECT_EQ(got.shape(), want.shape()) << name;
  EXPECT_EQ(got.dtype(), want.dtype()) << name;
  const Values a = full_tensor(got).to_vector(), b = want.to_vector();
  ASSERT_EQ(a.size(), b.size()) << name;
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], 1e-12 * (1 + std::abs(b[i]))) << name << " element " << i;
}

// Runs `body` on one rank.
template <class Body>
void alone(Body body) {
  on_ranks(1, [body](World& world) -> Task<void> {
    body(world);
    co_return;
  });
}

// Runs `body` on two ranks with a mesh, and checks that it issued `collectives` collectives.
template <class Body>
void without_moving(Body body, int collectives = 0) {
  on_ranks(2, [body, collectives](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    CountingObserver seen(world);
    body(world, mesh);
    EXPECT_EQ(seen.total(), collectives);
    co_return;
  });
}

// Runs `body` on `mesh_shape` and checks that it issued nothing.
template <class Body>
void without_collectives(const std::vector<int>& mesh_shape, Body body) {
  int ranks = 1;
  for (int n : mesh_shape) ranks *= n;
  on_ranks(ranks, [body, mesh_shape](World& world) -> Task<void> {
    const std::vector<std::string> names{"dp", "tp"};
    const DeviceMesh mesh =
        init_device_mesh(world, mesh_shape, {names.end() - mesh_shape.size(), names.end()});
    CountingObserver seen(world);
    body(world, mesh);
    EXPECT_EQ(seen.total(), 0);
    co_return;
  });
}

// The text of the Error{BadInput} that `call` throws.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::BadInput ? error.what() : "another kind";
  }
  return "accepted";
}

}  // namespace coshard::testing
