// What is computed from tensors that differ by rank is known to differ: every operator on marked
// plain inputs, with its gradients.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/tape/marks.h"
#include "tests/conformance/samples.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::on_ranks;

void walk_marked(World& world, const DeviceMesh& mesh, const OpDef& op,
                 const OpDef::Sample& sample) {
  const std::uint64_t mark = mark_of(mesh, 0);
  std::vector<Tensor> in, wanted;
  for (std::size_t k = 0; k < sample.in.size(); ++k) {
    in.push_back(testing::make_input(world, sample, k));
    if (!in[k].defined()) continue;
    varies(in[k], mesh, 0);
    if (op.backward == nullptr || !testing::wants_gradient(sample, in[k], k)) continue;
    in[k].set_requires_grad(true);
    wanted.push_back(in[k]);
  }
  const std::uint64_t expected = op.reads_in == 0 ? 0 : mark;
  std::vector<Tensor> outputs, seeds;
  for (const Tensor& y : call(op, in, sample.attrs)) {
    if (!y.defined()) continue;
    EXPECT_EQ(y.marks(), expected) << op.name;
    if (!y.requires_grad()) continue;
    outputs.push_back(y);
    seeds.push_back(varies(testing::seed_for(world, y), mesh, 0));
  }
  if (outputs.empty() || expected == 0) return;
  for (const Tensor& gradient : run_grad(outputs, wanted, seeds, {.allow_unused = true})) {
    if (!gradient.defined()) continue;
    const std::vector<double> values = gradient.to_vector();  // of floor: zeros, whatever the input
    const bool varies = std::ranges::any_of(values, [](double value) { return value != 0; });
    EXPECT_EQ(varies ? gradient.marks() : mark, mark) << op.name;
  }
}

TEST(MarksWalk, EveryOperatorPassesThemOn) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    int walked = 0;
    for (const OpDef* op : all_operators()) {
      if (op->samples == nullptr) continue;
      for (const OpDef::Sample& sample : op->samples()) walk_marked(world, mesh, *op, sample);
      ++walked;
    }
    EXPECT_GT(walked, 50);
    co_return;
  });
}

// One input that varies is enough, whichever it is.
TEST(MarksWalk, EachInputAloneIsEnough) {
  on_ranks(2, [](World& world) -> Task<void> {
    const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
    for (const OpDef* op : all_operators()) {
      if (op->samples == nullptr || op->samples().empty()) continue;
      const OpDef::Sample sample = op->samples().front();
      for (std::size_t one = 0; one < sample.in.size(); ++one) {
        std::vector<Tensor> in;
        for (std::size_t k = 0; k < sample.in.size(); ++k)
          in.push_back(testing::make_input(world, sample, k));
        if (!in[one].defined()) continue;
        varies(in[one], mesh, 0);
        const bool reads = (op->reads_in >> std::min<std::size_t>(one, 31) & 1U) != 0;
        EXPECT_EQ(call(*op, in, sample.attrs)[0].marks(), reads ? mark_of(mesh, 0) : 0)
            << op->name << " input " << one;
      }
    }
    co_return;
  });
}

}  // namespace
}  // namespace coshard
