#pragma once
// A linear layer that overlaps with the collectives around it. Rank's thread.
#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include <coshard/dtensor/placement.h>
#include <coshard/dtensor/tensor.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {

// Whether a layer computes while the collectives of its input and output are in flight.
enum class Overlap : std::uint8_t {
  Off,     // never: a collective, then the product, then the next collective
  Auto,    // where the cost model says that it is faster
  Always,  // wherever there is a schedule, for measuring
};
std::string_view to_string(Overlap overlap);
std::ostream& operator<<(std::ostream& out, Overlap overlap);
Overlap parse_overlap(std::string_view text);  // "off", "auto", "always"; Error{BadInput}

// Whether shards of x are still arriving from an all_gather that has been issued.
inline bool arrives_by_shards(const Tensor& x) {
  return x.defined() && x.in_flight() && x.storage()->gathered != nullptr;
}

// linear(x, weight, bias), redistributed to `target` if one is given; on the tape as these two. Two
// schedules, in backward for dX too, each the plain one where it would be slower (`overlap`):
//
//   x in flight from an all_gather: each shard is multiplied as it arrives, this rank's own first,
//     then rank+1, rank+2, … Bitwise the plain product where that is computed row by row.
//   The product is P(sum) and the target a shard of its rows: the rows of rank+1, rank+2, … are sent
//     as soon as they are computed, own rows last, and each rank adds up what it receives (f32 for
//     smaller dtypes). The target is R: all_reduces of a few pieces.
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
