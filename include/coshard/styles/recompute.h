#pragma once
// Recomputation, or activation checkpointing (Chen et al., 2016): a module saves no activations
// between forward and backward; backward runs it again. Rank's thread.
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

// Module::call, but the tape saves only the inputs. When a gradient arrives, backward runs the
// module again from the same random state, so that a dropout drops the same elements, and then runs
// backward through what that recorded. May be nested. The module, its parameters and its mode must
// not change in between, and must outlive the tape. See also Module::set_recompute.
//   Resumes: as Module::call.
//   Moves:   forward as Module::call. Backward repeats those collectives of forward whose results
//            it needs: not the redistribute of the last output.
//   Fails:   Error{BadInput}: more outputs than a record may have (4); in backward: siblings of a
//            when_all drew random numbers in between, an input or parameter was changed in place,
//            or a parameter was replaced.
Task<Outputs> recompute(Module& module, Inputs inputs, CallSite site = CallSite::current());
// The same for one input and one output.
Task<Tensor> recompute(Module& module, Tensor x, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
