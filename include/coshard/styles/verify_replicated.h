#pragma once
// Checks that the replicas of a model are equal. Rank's thread.
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

// Compares the bits of all parameters and gradients of `module` along the mesh dimensions where
// they are Replicate. A collective over their meshes.
//   Resumes, moves: as verify_replicas (dtensor/replicas.h).
//   Fails: Error{BadInput} on all ranks; names the first tensor that differs, and a rank.
Task<void> verify_replicated(Module& module, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
