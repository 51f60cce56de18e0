// What an operator keeps for its backward is what the backward reads: without any part of it, it
// fails in some sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/tape/tape.h>
#include "tests/conformance/samples.h"
#include "tests/support/ranks.h"

namespace coshard {
namespace {

using testing::make_input;
using testing::on_ranks;
using testing::seed_for;
using testing::wants_gradient;

using Gradients = std::vector<std::vector<double>>;

// What backward from each output gives in a sample, {} where it fails.
Gradients gradients_of(World& world, const OpDef& op, const OpDef::Sample& sample) {
  std::vector<Tensor> in;
  for (std::size_t k = 0; k < sample.in.size(); ++k) {
    in.push_back(make_input(world, sample, k));
    if (wants_gradient(sample, in[k], k)) in[k].set_requires_grad(true);
  }
  Gradients gradients;
  for (const Tensor& y : call(op, in, sample.attrs)) {
    if (!y.defined() || !y.requires_grad()) continue;
    try {
      run_backward(y, seed_for(world, y), BackwardOptions{.retain_graph = true});
    } catch (const Error&) {
      gradients.emplace_back();
    }
    for (const Tensor& x : in)
      if (x.defined() && x.grad().defined()) gradients.push_back(x.grad().to_vector());
  }
  return gradients;
}

bool reads(World& world, const OpDef& op, unsigned OpDef::*saves, unsigned bit) {
  static std::deque<OpDef> variants;  // decisions are remembered by address
  OpDef& without = variants.emplace_back(op);
  without.*saves &= ~(1U << bit);
  for (const OpDef::Sample& sample : op.samples())
    if (gradients_of(world, op, sample) != gradients_of(world, without, sample)) return true;
  return false;
}

void expect_nothing_superfluous(World& world, const OpDef& op) {
  const std::vector<OpDef::Sample> samples = op.samples();
  unsigned inputs = 0, outputs = 0;
  for (const OpDef::Sample& sample : samples) {
    inputs = std::max(inputs, static_cast<unsigned>(sample.in.size()));
    outputs = std::max(outputs, static_cast<unsigned>(op.infer(sample.in, sample.attrs).size()));
  }
  for (unsigned i = 0; i < inputs; ++i) {
    const bool needed = !(op.saves_in >> i & 1U) || reads(world, op, &OpDef::saves_in, i);
    EXPECT_TRUE(needed) << op.name << " keeps its input " << i;
  }
  for (unsigned i = 0; i < outputs; ++i) {
    const bool needed = !(op.saves_out >> i & 1U) || reads(world, op, &OpDef::saves_out, i);
    EXPECT_TRUE(needed) << op.name << " keeps its output " << i;
  }
}

TEST(Saves, AreWhatBackwardReads) {
  on_ranks(1, [](World& world) -> Task<void> {
    for (const OpDef* op : all_operators())
      if (op->backward != nullptr && op->samples != nullptr) expect_nothing_superfluous(world, *op);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
