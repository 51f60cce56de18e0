// overlapped_linear with every layout of its tensors, target and gradient, against plain tensors.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::shuffled;

struct Layouts {
  Placement x;
  bool gathered;  // x is redistributed to Replicate
  Placement weight;
  std::optional<Placement> bias, target;
  Placement gradient;
};

std::string said(const Layouts& l) {
  const auto or_none = [](const std::optional<Placement>& p) { return p ? str_cat(*p) : "none"; };
  return str_cat("x ", l.x, l.gathered ? " gathered" : "", ", weight ", l.weight, ", bias ",
                 or_none(l.bias), ", target ", or_none(l.target), ", gradient ", l.gradient);
}

// Small integers: sums are exact in any order.
Tensor whole_leaf(World& world, const Shape& shape) {
  return shuffled(world, shape).set_requires_grad(true);
}

struct Plain {
  Tensor x, weight, bias, gradient, y;
};

Task<Plain> plain_layer(World& world, const Shape& x, std::int64_t out, bool bias) {
  Plain plain{whole_leaf(world, x), whole_leaf(world, {out, x.back()}), {}, {}, {}};
  if (bias) plain.bias = whole_leaf(world, {out});
  plain.y = linear(plain.x, plain.weight, plain.bias);
  plain.gradient = shuffled(world, plain.y.shape());
  co_await backward(plain.y, plain.gradient);
  co_return plain;
}

Tensor placed_leaf(const Tensor& whole, const DeviceMesh& mesh, Placement p) {
  return distribute_tensor(whole.detach(), mesh, p, std::nullopt).set_requires_grad(true);
}

void expect_whole(const Tensor& got, const Tensor& want, const char* name) {
  ASSERT_TRUE(got.defined()) << name;
  EXPECT_EQ(full_tensor(got.detach()).to_vector(), want.detach().to_vector()) << name;
}

Task<void> expect_plain_values(const DeviceMesh& mesh, const Plain& plain, const Layouts& l) {
  const DTensor x = placed_leaf(plain.x, mesh, l.x);
  const Tensor weight = placed_leaf(plain.weight, mesh, l.weight);
  const Tensor bias = l.bias ? placed_leaf(plain.bias, mesh, *l.bias) : Tensor();
  const Tensor read = l.gathered ? x.redistribute(Replicate()).tensor() : Tensor(x);
  Task<Tensor> product = overlapped_linear(read, weight, bias, l.target, Overlap::Always);
  const Tensor y = co_await std::move(product);
  EXPECT_TRUE(!l.target || y.layout() == Layout(*l.target)) << y.layout();
  expect_whole(y, plain.y, "y");
  const Tensor dy = distribute_tensor(plain.gradient, mesh, l.gradient, std::nullopt);
  co_await backward(y, dy);
  expect_whole(x.grad(), plain.x.grad(), "the gradient of x");
  expect_whole(weight.grad(), plain.weight.grad(), "the gradient of weight");
  if (l.bias) expect_whole(bias.grad(), plain.bias.grad(), "the gradient of bias");
}

std::vector<Placement> placements_of(std::size_t ndim) {
  std::vector<Placement> all{Replicate(), Partial()};
  for (std::size_t d = 0; d < ndim; ++d) all.emplace_back(Shard(static_cast<int>(d)));
  return all;
}

std::vector<Layouts> every_layout(std::size_t ndim) {
  const std::vector<Placement> of_x = placements_of(ndim);
  std::vector<std::optional<Placement>> biases{std::nullopt}, targets{std::nullopt};
  for (const Placement& p : placements_of(1)) biases.emplace_back(p);
  for (const Placement& p : of_x)
    if (!p.is_partial()) targets.emplace_back(p);
  std::vector<Layouts> all;
  for (const Placement& x : of_x)
    for (const bool gathered : {false, true})
      for (const Placement& weight : placements_of(2))
        for (const auto& bias : biases)
          for (const auto& target : targets) {
            const std::size_t turn = all.size() * 7 + all.size() / 5;
            all.push_back({x, gathered, weight, bias, target, of_x[turn % of_x.size()]});
          }
  return all;
}

// Every nth of them.
void expect_plain_values_of_every(std::size_t nth, int ranks, const Shape& shape) {
  on_ranks(ranks, [=](World& world) -> Task<void> {
    const DeviceMesh unknown = init_device_mesh(world, {world.size()}, {"tp"});
    const DeviceMesh linked = unknown.with_links({{.latency = 1, .bytes_per_us = 10}});
    const Plain with = co_await plain_layer(world, shape, 5, true);
    const Plain without = co_await plain_layer(world, shape, 5, false);
    const std::vector<Layouts> all = every_layout(shape.size());
    for (std::size_t i = 0; i < all.size(); i += nth) {
      SCOPED_TRACE(str_cat(world.size(), " ranks, ", shape, ": ", said(all[i])));
      const DeviceMesh& mesh = i / 3 % 2 == 0 ? unknown : linked;
      const Plain& plain = all[i].bias ? with : without;
      co_await expect_plain_values(mesh, plain, all[i]);
    }
  });
}

TEST(OverlappedLinear, OfEveryLayoutHasTheValuesAndGradientsOfPlainTensors) {
  expect_plain_values_of_every(1, 2, {6, 5});
  expect_plain_values_of_every(1, 2, {2, 3, 4});
  expect_plain_values_of_every(3, 3, {2, 3, 4});
  expect_plain_values_of_every(7, 3, {1, 7, 1});
}

}  // namespace
}  // namespace coshard
