#pragma once
// Recomputation (Chen et al., 2016): a module that keeps no activations between forward and
// backward; backward runs it again. Rank's thread.
#include <coshard/styles/module.h>

namespace coshard {

// Module::call, but the tape keeps the inputs only. When a gradient arrives, backward runs the
// module again, with the random state of now, so that a dropout drops the same; then it walks what
// that recorded. May be nested. The module, its parameters and its mode must be as they are now,
// and outlive the tape. See also Module::set_recompute.
//   Resumes: as Module::call.
//   Moves:   forward as Module::call. Backward repeats those collectives of forward whose result
//   is read again: not the redistribute of the last output.
//   Fails:   Error{BadInput}: more outputs than a record may have (4); in backward, when siblings
//   of a when_all drew random numbers meanwhile, what it read was changed in place since, or a
//   parameter replaced.
Task<Outputs> recompute(Module& module, Inputs inputs, CallSite site = CallSite::current());
// The same with one tensor in and one out.
Task<Tensor> recompute(Module& module, Tensor x, CallSite site = CallSite::current());

}  // namespace coshard
