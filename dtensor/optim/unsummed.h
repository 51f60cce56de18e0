#pragma once
// Gradients of which each rank holds a term, and that nothing has summed: found by comparing hashes,
// because what is known of tensors (marks.h) says only where to look. Rank's thread.
#include <string_view>
#include <vector>

#include <coshard/dtensor/tensor.h>
#include <coshard/runtime/coro/task.h>

namespace coshard {

// Compares the parameters whose gradients vary along a dimension along which they themselves are
// not known to, each once; with `all`, again, and also plain parameters along the meshes of the
// DTensors in the list. Does nothing while a step is captured.
//   Moves:   where there are such, 16 bytes per parameter: one all_gather per dimension, label
//            "replicas", hidden from observers; and their values and gradients to the host.
//   Fails:   Error{BadInput} on all ranks of the dimension: names the first parameter that is equal
//            on them while its gradient is not. If the parameter differs, too, each rank trains its
//            own: the first one warns of that, once, and from then on it is known (varies).
Task<void> require_summed(std::vector<Tensor> parameters, std::string_view who, bool all);

}  // namespace coshard
