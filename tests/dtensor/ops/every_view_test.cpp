// Every function of ops_view.h and ops_index.h on a mesh of two dimensions, in every pair of
// placements: values and gradients are those of plain tensors.
#include <gtest/gtest.h>

#include <algorithm>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;

// An i64 index beside x: plain for a plain x, replicated for a DTensor.
Tensor index_like(const Tensor& x, const Shape& shape, const std::vector<double>& values) {
  const Tensor index = Tensor::from_values(x.device(), shape, DType::I64, values);
  return x.is_distributed()
             ? distribute_tensor(index, x.mesh(), Layout::filled(x.mesh().ndim(), Replicate()),
                                 std::nullopt)
             : index;
}

struct NamedView {
  const char* name;
  Tensor (*f)(const Tensor&);
};

// Of x [3,4,6].
const std::vector<NamedView>& view_functions() {
  static const std::vector<NamedView> all{
      {"flatten", [](const Tensor& x) { return flatten(x); }},
      {"flatten 1", [](const Tensor& x) { return flatten(x, 1); }},
      {"unflatten",
       [](const Tensor& x) {
         return unflatten(x, 2, {2, -1});
       }},
      {"view",
       [](const Tensor& x) {
         return view(x, {6, 2, -1});
       }},
      {"there and back",
       [](const Tensor& x) {
         return view(view(x, {72}), {3, 4, 6});
       }},
      {"unsqueeze", [](const Tensor& x) { return unsqueeze(x, -2); }},
      {"expand",
       [](const Tensor& x) {
         return expand(unsqueeze(x, 1), {-1, 2, -1, -1});
       }},
      {"movedim", [](const Tensor& x) { return movedim(x, {0}, {2}); }},
      {"repeat",
       [](const Tensor& x) {
         return repeat(x, {2, 1, 2, 3});
       }},
      {"repeat_interleave", [](const Tensor& x) { return repeat_interleave(x, 3, 1); }},
      {"flip",
       [](const Tensor& x) {
         return flip(x, Shape{0, 2}.span());
       }},
      {"slice", [](const Tensor& x) { return slice(x, 2, 1, 6, 2); }},
      {"empty slice",
       [](const Tensor& x) {
         return cat({slice(x, 0, 2, 1), x}, 0);
       }},
      {"select", [](const Tensor& x) { return select(x, 1, -2); }},
      {"split", [](const Tensor& x) { return cat(split(x, 4, 2), 2); }},
      {"chunk", [](const Tensor& x) { return mul(chunk(x, 2, 0)[1], 3.0); }},
      {"unbind", [](const Tensor& x) { return add(unbind(x, 1)[0], unbind(x, 1)[3]); }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, Shape{1, -2, 0, 3}.span(), 1.5);
       }},
      {"stack",
       [](const Tensor& x) {
         return stack(std::vector<Tensor>{x, x}, 1);
       }},
      {"roll", [](const Tensor& x) { return roll(roll(x, 1, 0), -2, 2); }},
      {"tril", [](const Tensor& x) { return tril(x, 1); }},
      {"triu", [](const Tensor& x) { return triu(x, -1); }},
      {"diagonal", [](const Tensor& x) { return diagonal(x, -1, 2, 0); }},
      {"index_select",
       [](const Tensor& x) {
         return index_select(x, 1, index_like(x, {3}, {3, 0, 3}));
       }},
      {"gather",
       [](const Tensor& x) {
         return gather(x, 2, index_like(x, {3, 1, 4}, {0, 5, 1, 1, 2, 2, 2, 2, 4, 0, 1, 3}));
       }},
      {"scatter",
       [](const Tensor& x) {
         return scatter(x, 1, index_like(x, {2, 1, 3}, {0, 3, 2, 1, 1, 2}), 2.5);
       }},
      {"scatter a source",
       [](const Tensor& x) {
         return scatter(x, 1, index_like(x, {2, 1, 3}, {0, 3, 2, 1, 1, 2}), x);
       }},
      {"scatter_add",
       [](const Tensor& x) {
         return scatter_add(x, 0, index_like(x, {3, 1, 3}, {0, 0, 2, 1, 0, 2, 1, 1, 1}), x);
       }},
  };
  return all;
}

struct ViewResult {
  std::vector<double> value, gradient;
};

ViewResult run_view(const NamedView& function, Tensor x) {
  x = x.detach();
  x.set_requires_grad(true);
  const Tensor y = function.f(x);
  std::vector<double> seed(static_cast<std::size_t>(y.numel()));
  for (std::size_t i = 0; i < seed.size(); ++i) seed[i] = static_cast<double>(i % 7) - 2.5;
  const Tensor dy = Tensor::from_values(x.device(), y.shape(), y.dtype(), seed);
  if (!x.is_distributed()) {
    run_backward(y, dy);
    return {y.to_vector(), x.grad().to_vector()};
  }
  const Layout whole = Layout::filled(x.mesh().ndim(), Replicate());
  run_backward(y, distribute_tensor(dy, x.mesh(), whole, std::nullopt));
  return {full_tensor(y.detach()).to_vector(), full_tensor(x.grad()).to_vector()};
}

void expect_same(const std::vector<double>& got, const std::vector<double>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-9) << what << " element " << i;
}

class EveryView : public ::testing::TestWithParam<std::size_t> {};

TEST_P(EveryView, GivesTheValuesAndGradientsOfPlainTensorsInEveryLayout) {
  struct Body {
    static Task<void> run_all(World& world, const NamedView& function) {
      const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
      const Tensor plain = counting(world, {3, 4, 6});
      const ViewResult want = run_view(function, plain);
      const std::vector<Placement> placements{Replicate(),        Shard(0),
                                              Shard(1),           Shard(2),
                                              StridedShard(2, 3), StridedShard(2, 1, 2),
                                              Partial(),          Partial(Reduce::Max)};
      for (const Placement& first : placements) {
        for (const Placement& second : placements) {
          if (first.is_partial() && second.is_partial() && !(first == second)) continue;
          const Layout layout(first, second);
          const ViewResult got =
              run_view(function, distribute_tensor(plain, mesh, layout, std::nullopt));
          const std::string what = str_cat(function.name, " of ", layout);
          expect_same(got.value, want.value, what);
          expect_same(got.gradient, want.gradient, what + " gradient");
        }
      }
      co_return;
    }
  };
  const NamedView& function = view_functions()[GetParam()];
  on_ranks(4, [&function](World& world) { return Body::run_all(world, function); });
}

INSTANTIATE_TEST_SUITE_P(All, EveryView, ::testing::Range<std::size_t>(0, view_functions().size()),
                         [](const auto& info) {
                           std::string name = view_functions()[info.param].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace coshard
