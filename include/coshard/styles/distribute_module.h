#pragma once
// distribute_module: distributes a module over a mesh by user-defined functions, where no style
// fits.
#include <coshard/styles/style.h>

#pragma GCC visibility push(default)
namespace coshard {

// Called for the module ("") and every module below it; replaces parameters by DTensors.
using PartitionFn = std::function<void(const std::string& path, Module&, const DeviceMesh&)>;
// Hooks of the module itself.
using InputFn = std::function<void(Module&, Inputs&, const DeviceMesh&)>;
using OutputFn = std::function<void(Module&, Outputs&, const DeviceMesh&)>;

// Parameters that partition_fn leaves plain are replicated over every mesh dimension. requires_grad
// is kept and tied parameters stay tied. Any of the functions may be empty. As in
// parallelize_module, it applies in full or not at all, and handles it replaces are no longer
// leaves. A collective over the mesh, unless nothing is sent.
//   Moves:   per replicated parameter one broadcast per mesh dimension; nothing with
//            src_data_rank = nullopt.
//   Fails:   Error{BadInput}: an undefined mesh; a module that was distributed before, by this or
//            by a style that shards parameters; a src_data_rank outside some mesh dimension; a
//            parameter that is tied to one outside of the module. Any exception of partition_fn.
void distribute_module(Module& module, const DeviceMesh& mesh, const PartitionFn& partition_fn = {},
                       const InputFn& input_fn = {}, const OutputFn& output_fn = {},
                       const ParallelizeOptions& options = {}, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
