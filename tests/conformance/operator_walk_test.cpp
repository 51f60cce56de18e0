// Every operator, on every sample, under every combination of input placements: the value, the
// gradients and the collectives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/ops/op.h>
#include "tests/conformance/samples.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::make_input;
using testing::on_ranks;
using testing::seed_for;
using testing::value_at;
using testing::wants_gradient;

// What every combination is made of, and what takes one input's turn while the others are simple.
std::vector<Placement> simple_placements(const Tensor& x) {
  std::vector<Placement> all{Replicate()};
  for (int d = 0; d < x.ndim(); ++d) all.push_back(Shard(d));
  if (is_floating(x.dtype())) all.push_back(Partial());
  return all;
}
std::vector<Placement> rare_placements(const Tensor& x) {
  std::vector<Placement> all;
  for (int d = 0; d < x.ndim(); ++d)
    all.push_back(StridedShard(d, 2)), all.push_back(StridedShard(d, 1, 2));
  if (!is_floating(x.dtype())) return all;
  for (const Reduce reduce : {Reduce::Avg, Reduce::Min, Reduce::Max, Reduce::Product})
    all.push_back(Partial(reduce));
  return all;
}

// What rank `r` of n holds of element i when its reduction is to be `value`: sums are split 60/40
// under noise of alternating sign that cancels out, an extreme is held by one rank only.
double share_of(double value, Reduce reduce, std::size_t i, int r, int n) {
  if (n == 1) return value;
  if (reduce == Reduce::Product) return r == 0 ? value * 2 : r == 1 ? 0.5 : 1;
  if (reduce == Reduce::Max || reduce == Reduce::Min) {
    const double away = reduce == Reduce::Max ? -1.25 : 1.25;
    return static_cast<int>(i % static_cast<std::size_t>(n)) == r ? value : value + away;
  }
  const double noise = i % 2 ? 1.5 : -1.5;
  const double part = value * (r == 0   ? 0.6
                               : r == 1 ? 0.4
                                        : 0.0) +
                      (r == 0 ? noise * (n - 1) : -noise);
  return reduce == Reduce::Avg ? part * n : part;
}

// This rank's part of `full` in any layout, made without the library's redistribute.
DTensor distribute(World& world, const DeviceMesh& mesh, const Tensor& full, const Layout& layout) {
  const auto spec = make_spec(mesh, layout, full.shape());
  std::vector<int> coordinate;
  for (int m = 0; m < mesh.ndim(); ++m) coordinate.push_back(mesh.local_rank(m));
  std::vector<std::size_t> flat{0};  // positions of the local elements, row-major
  for (int d = 0; d < full.ndim(); ++d) {
    const auto size = full.shape()[static_cast<std::size_t>(d)];
    std::vector<std::size_t> longer;
    for (const std::size_t base : flat)
      for (const Range& r : ranges_of(layout, mesh.shape(), coordinate, d, size))
        for (auto k = r.begin; k < r.end; ++k)
          longer.push_back(base * static_cast<std::size_t>(size) + static_cast<std::size_t>(k));
    flat = longer;
  }
  const std::vector<double> all = full.to_vector();
  std::vector<double> values;
  for (const std::size_t at : flat) {
    double value = all[at];
    for (int m = 0; m < mesh.ndim(); ++m)
      if (layout[m].is_partial())
        value = share_of(value, layout[m].reduce, at, mesh.local_rank(m), mesh.size(m));
    values.push_back(value);
  }
  return Tensor::from_values(world.device(), spec->local_shape, full.dtype(), values)
      .with_spec(spec);
}

// Counts what was planned and what was issued.
class PlanObserver final : public Observer {
 public:
  explicit PlanObserver(World& world) : world_(world) { world.add_observer(this); }
  ~PlanObserver() override { world_.remove_observer(this); }
  void planned(std::string_view step, std::int64_t) override { planned_.emplace_back(step); }
  void issued(const CommEvent& event, std::int64_t) override { issued_.emplace_back(event.label); }
  std::vector<std::string> planned_, issued_;

 private:
  World& world_;
};

struct Expected {
  std::array<std::vector<double>, kMaxOutputs> outputs;
  std::vector<std::vector<double>> gradients;
};

void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(want[i]) && std::isnan(got[i]))) continue;  // -inf, too
    ASSERT_NEAR(got[i], want[i], 1e-9 * (1 + std::abs(want[i]))) << what << " element " << i;
  }
}

Expected on_one_device(World& world, const OpDef& op, const OpDef::Sample& sample,
                       std::vector<Tensor> in) {
  for (std::size_t k = 0; k < in.size(); ++k)
    if (op.backward && wants_gradient(sample, in[k], k)) in[k].set_requires_grad(true);
  const auto out = call(op, in, sample.attrs);
  Expected expected;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].defined()) expected.outputs[i] = out[i].to_vector();
  if (op.backward) run_backward(out[0], seed_for(world, out[0]));
  for (const Tensor& x : in)
    expected.gradients.push_back(x.defined() && x.grad().defined() ? x.grad().to_vector()
                                                                   : std::vector<double>());
  return expected;
}

void walk_combination(World& world, const DeviceMesh& mesh, const OpDef& op,
                      const OpDef::Sample& sample, const std::vector<Tensor>& full,
                      const std::vector<Layout>& layouts, const Expected& expected) {
  std::string what = str_cat(op.name, " on ", mesh, ":");
  std::vector<Tensor> in(full.size());
  for (std::size_t k = 0; k < full.size(); ++k) {
    if (!full[k].defined()) continue;
    in[k] = distribute(world, mesh, full[k], layouts[k]);
    if (op.backward && wants_gradient(sample, full[k], k)) in[k].set_requires_grad(true);
    what += " " + describe(in[k]);
  }
  PlanObserver seen(world);
  const auto out = call(op, in, sample.attrs);
  EXPECT_EQ(seen.planned_, seen.issued_) << what;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (out[i].defined())
      expect_close(full_tensor(out[i].detach()).to_vector(), expected.outputs[i],
                   what + str_cat(" output ", i, " ", out[i].layout()));
  if (!op.backward) return;
  const Layout whole = Layout::filled(mesh.ndim(), Replicate());
  run_backward(out[0], distribute_tensor(seed_for(world, out[0]), mesh, whole, std::nullopt));
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (!in[k].defined() || !in[k].requires_grad()) continue;
    ASSERT_TRUE(in[k].grad().defined()) << what << " input " << k;
    expect_close(full_tensor(in[k].grad()).to_vector(), expected.gradients[k],
                 what + str_cat(" gradient ", k, " ", in[k].grad().layout()));
  }
}

// Every combination of simple placements on a mesh of one dimension; each rare one of each input
// beside simple ones of the others, which take turns.
std::vector<std::vector<Layout>> all_combinations(const std::vector<Tensor>& full) {
  std::vector<std::vector<Placement>> simple, rare;
  std::size_t combinations = 1;
  for (const Tensor& x : full) {
    simple.push_back(x.defined() ? simple_placements(x) : std::vector<Placement>{Replicate()});
    rare.push_back(x.defined() ? rare_placements(x) : std::vector<Placement>{});
    combinations *= simple.back().size();
  }
  const auto pick = [&](std::size_t c) {
    std::vector<Layout> layouts;
    for (const auto& choice : simple) {
      layouts.emplace_back(choice[c % choice.size()]);
      c /= choice.size();
    }
    return layouts;
  };
  std::vector<std::vector<Layout>> all;
  for (std::size_t c = 0; c < combinations; ++c) all.push_back(pick(c));
  std::size_t turn = 0;
  for (std::size_t k = 0; k < full.size(); ++k) {
    for (const Placement& p : rare[k]) {
      for (int beside = 0; beside < (full.size() > 1 ? 3 : 1); ++beside) {
        all.push_back(pick(turn++ * 7 % combinations));
        all.back()[k] = Layout(p);
      }
      // The same in every input that can have it.
      all.push_back(pick(0));
      for (std::size_t other = 0; other < full.size(); ++other)
        if (std::find(rare[other].begin(), rare[other].end(), p) != rare[other].end())
          all.back()[other] = Layout(p);
    }
  }
  return all;
}

// Layouts drawn for a mesh of more dimensions; the same on every rank.
std::vector<std::vector<Layout>> drawn_combinations(const std::vector<Tensor>& full, int mesh_dims,
                                                    std::uint64_t seed) {
  constexpr int kDrawn = 24;
  const auto draw = [&seed](std::size_t below) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(seed >> 33) % below;
  };
  std::vector<std::vector<Layout>> all(kDrawn);
  for (auto& layouts : all) {
    for (const Tensor& x : full) {
      Layout layout;
      for (int m = 0; m < mesh_dims; ++m) {
        if (!x.defined()) {
          layout.push_back(Replicate());
          continue;
        }
        auto choice = simple_placements(x);
        if (draw(4) == 0)
          for (const Placement& p : rare_placements(x)) choice.push_back(p);
        layout.push_back(choice[draw(choice.size())]);
      }
      layouts.push_back(layout);
    }
  }
  return all;
}

void walk_sample(World& world, const DeviceMesh& mesh, const OpDef& op,
                 const OpDef::Sample& sample) {
  std::vector<Tensor> full;
  for (std::size_t k = 0; k < sample.in.size(); ++k) full.push_back(make_input(world, sample, k));
  const Expected expected = on_one_device(world, op, sample, full);
  for (const auto& layouts : mesh.ndim() == 1
                                 ? all_combinations(full)
                                 : drawn_combinations(full, mesh.ndim(), op.name.size())) {
    for (Tensor& x : full)
      if (x.defined()) x = x.detach();
    walk_combination(world, mesh, op, sample, full, layouts, expected);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

using MeshShape = std::vector<int>;

class OperatorWalk : public ::testing::TestWithParam<std::tuple<MeshShape, std::string>> {};

TEST_P(OperatorWalk, GivesTheValueTheGradientsAndThePlannedCollectives) {
  const auto [shape, name] = GetParam();
  int ranks = 1;
  for (int size : shape) ranks *= size;
  for (const OpDef* op : all_operators()) {
    if (op->name != name) continue;
    struct Body {
      static Task<void> run(World& world, const OpDef& op, MeshShape shape) {
        const DeviceMesh mesh = init_device_mesh(world, shape);
        for (const OpDef::Sample& sample : op.samples()) walk_sample(world, mesh, op, sample);
        co_return;
      }
    };
    on_ranks(ranks, [op, shape = shape](World& world) { return Body::run(world, *op, shape); });
  }
}

std::vector<std::string> names_with_samples() {
  std::vector<std::string> names;
  for (const OpDef* op : all_operators())
    if (op->samples && !op->samples().empty()) names.emplace_back(op->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, OperatorWalk,
                         ::testing::Combine(::testing::Values(MeshShape{1}, MeshShape{2},
                                                              MeshShape{3}, MeshShape{2, 2}),
                                            ::testing::ValuesIn(names_with_samples())),
                         [](const auto& info) {
                           std::string name = std::get<1>(info.param) + "_on";
                           for (int size : std::get<0>(info.param))
                             name += "_" + std::to_string(size);
                           return name;
                         });

// The gradient of every operator against central differences, on plain tensors.
class OperatorGradient : public ::testing::TestWithParam<std::string> {};

double objective(World& world, const OpDef& op, const OpDef::Sample& sample,
                 const std::vector<Tensor>& in) {
  const auto out = call(op, in, sample.attrs);
  const std::vector<double> y = out[0].to_vector(), w = seed_for(world, out[0]).to_vector();
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * w[i];
  return sum;
}

void check_gradients(World& world, const OpDef& op, const OpDef::Sample& sample) {
  std::vector<Tensor> in;
  for (std::size_t k = 0; k < sample.in.size(); ++k) in.push_back(make_input(world, sample, k));
  const Expected expected = on_one_device(world, op, sample, in);
  constexpr double kStep = 1e-5;
  const NoGradGuard no_grad;
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (!wants_gradient(sample, in[k], k)) continue;
    const Tensor original = in[k];
    std::vector<double> values = original.to_vector();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double kept = values[i];
      double sides[2];
      for (int side : {0, 1}) {
        values[i] = kept + (side ? kStep : -kStep);
        in[k] = Tensor::from_values(world.device(), original.shape(), DType::F64, values);
        sides[side] = objective(world, op, sample, in);
      }
      values[i] = kept;
      EXPECT_NEAR(expected.gradients[k][i], (sides[1] - sides[0]) / (2 * kStep), 1e-6)
          << op.name << " input " << k << " element " << i;
    }
    in[k] = original;
  }
}

TEST_P(OperatorGradient, EqualsCentralDifferences) {
  for (const OpDef* op : all_operators()) {
    if (op->name != GetParam() || !op->backward) continue;
    struct Body {
      static Task<void> run(World& world, const OpDef& op) {
        for (const OpDef::Sample& sample : op.samples()) check_gradients(world, op, sample);
        co_return;
      }
    };
    on_ranks(1, [op](World& world) { return Body::run(world, *op); });
  }
}

INSTANTIATE_TEST_SUITE_P(All, OperatorGradient, ::testing::ValuesIn(names_with_samples()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace coshard
