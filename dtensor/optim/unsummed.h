#pragma once
// Gradients of which each rank holds a term, and that nothing has summed: found by comparing
// hashes, because what is known of tensors (marks.h) says only where to look. Rank's thread.
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// Has ranks compare the parameters whose gradients vary along a dimension along which they do not
// train their own, each once; with `again`, all of them, and also plain parameters along the meshes
// of the DTensors in the list. Gradients have arrived. Does nothing while a step is captured.
//   Moves:   nothing: 16 bytes per such parameter travel with the next collective of the dimension
//            (Communicator::compare_with_next). Values and gradients go to the host.
//   Fails:   that collective, with Error{CommFailed} on all ranks, if a parameter is equal on two of
//            them while its gradient is not. Error{BadInput}: such a parameter has not been compared
//            yet when a step is captured.
void compare_gradients(const std::vector<Tensor>& parameters, bool again);

}  // namespace coshard
