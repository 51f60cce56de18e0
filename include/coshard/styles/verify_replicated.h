#pragma once
// Checks that the replicas of a model are equal. Rank's thread.
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

// Compares the bits of all parameters and gradients of `module` along the mesh dimensions where
// they are Replicate, and those of its plain parameters along the meshes of its DTensors, but for
// dimensions along which each rank trains its own (varies). A collective over these meshes.
//   Resumes: when all hashes have arrived.
//   Moves:   8 bytes per tensor: one all_gather per mesh dimension, hidden from observers; and each
//            tensor from the device to the host.
//   Fails:   Error{BadInput} on all ranks; names the first tensor that differs, and a rank.
Task<void> verify_replicated(Module& module, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
