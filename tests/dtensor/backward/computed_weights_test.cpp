// Overlapped linear layers whose weight or bias an operator has made: their gradients are no
// leaves', and read what arrives while the product is still to come.
#include <gtest/gtest.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::on_ranks;
using testing::shuffled;
using testing::Values;

enum class Computed { Weight, Transposed, Narrowed, LowRank, Bias, Both };
constexpr Computed kMade[] = {Computed::Weight,  Computed::Transposed, Computed::Narrowed,
                              Computed::LowRank, Computed::Bias,       Computed::Both};

struct ComputedLayer {
  std::vector<DTensor> leaves;  // x first
  Tensor weight, bias;          // [8, 6], sharded over its columns; [8]
};

ComputedLayer parts_of(World& world, const DeviceMesh& mesh, Computed made) {
  ComputedLayer parts;
  const auto leaf = [&](const Shape& shape, Placement placement) -> const DTensor& {
    return parts.leaves.emplace_back(
        distribute_tensor(shuffled(world, shape), mesh, placement).set_requires_grad(true));
  };
  leaf({4, 6}, Shard(1));
  if (made == Computed::Transposed)
    parts.weight = leaf({6, 8}, Shard(0)).t();
  else if (made == Computed::Narrowed)
    parts.weight = leaf({24, 6}, Shard(1)).narrow(0, 8, 8);
  else if (made != Computed::LowRank)
    parts.weight = leaf({8, 6}, Shard(1));
  if (made == Computed::Weight || made == Computed::Both) parts.weight = parts.weight * 2;
  if (made == Computed::LowRank) {
    const DTensor base = leaf({8, 6}, Shard(1));
    const DTensor b = leaf({8, 2}, Replicate());
    parts.weight = base + matmul(b, leaf({2, 6}, Shard(1)));
  }
  if (made == Computed::Bias || made == Computed::Both) parts.bias = leaf({8}, Replicate()) * 3;
  return parts;
}

// y, then the gradients of the leaves.
Task<std::vector<Values>> values_with(World& world, Computed made, Placement output,
                                      Overlap overlap) {
  const ComputedLayer parts =
      parts_of(world, init_device_mesh(world, {world.size()}, {"tp"}), made);
  Task<Tensor> run = overlapped_linear(parts.leaves[0], parts.weight, parts.bias, output, overlap);
  const Tensor y = co_await std::move(run);
  Task<void> walk = backward(sum(mul(y, y)));
  co_await std::move(walk);
  std::vector<Values> all{full_tensor(y.detach()).to_vector()};
  for (const DTensor& leaf : parts.leaves) all.push_back(full_tensor(leaf.grad()).to_vector());
  co_return all;
}

// Small integers: sums are exact in any order.
TEST(ComputedWeights, HaveTheGradientsOfThePlainBackward) {
  for (const int ranks : {1, 2, 3})
    on_ranks(ranks, [](World& world) -> Task<void> {
      for (const Computed made : kMade)
        for (const Placement& output : {Placement(Shard(0)), Placement(Replicate())}) {
          const auto want = co_await values_with(world, made, output, Overlap::Off);
          const auto got = co_await values_with(world, made, output, Overlap::Always);
          EXPECT_EQ(got, want) << static_cast<int>(made) << ' ' << output;
        }
    });
}

}  // namespace
}  // namespace coshard
