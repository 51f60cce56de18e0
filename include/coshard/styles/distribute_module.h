#pragma once
// distribute_module: a module on a mesh by functions of the user's. What the styles do in one line
// each, for everything else.
#include <coshard/styles/style.h>

namespace coshard {

// Called for the module ("") and every module below it; replaces parameters by DTensors.
using PartitionFn = std::function<void(const std::string& path, Module&, const DeviceMesh&)>;
// Hooks of the module itself.
using InputFn = std::function<void(Module&, Inputs&, const DeviceMesh&)>;
using OutputFn = std::function<void(Module&, Outputs&, const DeviceMesh&)>;

// Parameters that partition_fn leaves plain are replicated over all dimensions of the mesh: one
// broadcast each per mesh dimension, none with src_data_rank = nullopt. requires_grad is kept, tied
// parameters stay tied. Any of the functions may be empty. All or nothing, and handles that are
// replaced are no leaves any more, as parallelize_module. Collective over the mesh, unless nothing
// is sent. Error{BadInput}: an undefined mesh, a module
// that was given to it or to a style that cuts parameters before, a src_data_rank that is not one
// of every mesh dimension; what partition_fn throws.
void distribute_module(Module& module, const DeviceMesh& mesh, const PartitionFn& partition_fn = {},
                       const InputFn& input_fn = {}, const OutputFn& output_fn = {},
                       const ParallelizeOptions& options = {}, CallSite site = CallSite::current());

}  // namespace coshard
