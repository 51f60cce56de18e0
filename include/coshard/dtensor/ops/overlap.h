#pragma once
// A linear layer that overlaps with the collectives around it. Rank's thread.
#include <optional>
#include <span>
#include <vector>

#include <coshard/dtensor/mesh/placement.h>
#include <coshard/dtensor/tape/overlap.h>
#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// Whether shards of x are still arriving from an all_gather that has been issued.
inline bool arrives_by_shards(const Tensor& x) {
  return x.defined() && x.in_flight() && x.storage()->gathered != nullptr;
}

// The linear layers that multiply one input, all at once (as branches of when_all).
struct InputProducts {
  std::vector<Tensor> weights = {};
  Overlap overlap = Overlap::Off;  // Off: they read a gathered input
};

// Whether these layers are forecast to end sooner if the all_gather of x, a shard, to `target` is
// asked to bring its shards one by one (RedistributeOptions::by_shards). False if it does so unasked
// (Communicator::gathers_by_shards), with Overlap::Off, on an unknown link (but with Always), and
// where x is not gathered on a mesh of one dimension. Equal on all ranks.
bool multiplies_sooner(const Tensor& x, const Layout& target, const InputProducts& products);

// If shards of x are arriving, the linear layers with these weights multiply them together: for
// each of them the cost model compares all with all. The first call counts.
inline void multiply_together(const Tensor& x, std::span<const Tensor> weights) {
  if (!arrives_by_shards(x) || !x.storage()->gathered->weights.empty()) return;
  Gathered gathered = *x.storage()->gathered;
  for (const Tensor& weight : weights)
    if (weight.is_distributed()) gathered.weights.push_back(weight.spec());
  x.storage()->gathered = std::make_shared<const Gathered>(std::move(gathered));
}

// linear(x, weight, bias), redistributed to `target` if given; on the tape as these two operators.
// Two overlapped schedules, used for dX in backward too; the plain one runs where they would be
// slower (`overlap`):
//
//   x is in flight from an all_gather: each shard is multiplied as it arrives, this rank's first,
//     then rank+1, rank+2, … Bitwise equal to the plain GEMM where that computes row by row.
//   The result is P(sum) and the target a shard of its rows: the rows of rank+1, rank+2, … are sent
//     as soon as they are computed, this rank's last, and each rank sums what it receives (in f32
//     for smaller dtypes). If the target is R: one all_reduce for each of a few pieces of rows.
//
//   Shapes:   as linear: x [..., in], weight [out, in], bias [out] or undefined.
//   Resumes:  once the result is ordered on the device. Suspends for each shard or piece.
//   Issues:   the collectives of the plain schedule, or n-1 all_to_alls per piece in place of a
//             reduce_scatter, or one all_reduce per piece. Equal on all ranks.
//   Fails:    as linear and redistribute.
//   Source:   pipelined all-gather-matmul and matmul-reduce-scatter of PyTorch's symmetric memory;
//             Wang et al., Overlap Communication with Dependent Computation via Decomposition,
//             ASPLOS 2023.
Task<Tensor> overlapped_linear(Tensor x, Tensor weight, Tensor bias,
                               std::optional<Placement> target = std::nullopt,
                               Overlap overlap = Overlap::Auto,
                               CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
