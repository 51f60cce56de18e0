#pragma once
// Sharded data parallelism (ZeRO: Rajbhandari et al., 2020; torch's fully_shard): each rank keeps
// its part of every parameter, of its gradient and of the optimizer's state. Rank's thread.
#include <functional>
#include <optional>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/dtype.h>
#include <coshard/styles/module.h>

#pragma GCC visibility push(default)
namespace coshard {

// The dtypes in which a sharded module works (torch's MixedPrecisionPolicy), all floating-point.
// The shards, and the optimizer's state with them, keep their own dtype.
struct MixedPrecisionPolicy {
  // Of the unsharded parameters: shards are cast before the all_gather, and forward and backward
  // compute in it. Default: the parameters' own.
  std::optional<DType> param_dtype = std::nullopt;
  // In which gradients are reduced. Default: that in which they were computed.
  std::optional<DType> reduce_dtype = std::nullopt;
  // To which floating-point outputs of the module are cast. Default: as they come.
  std::optional<DType> output_dtype = std::nullopt;
  // Casts floating-point inputs of the module to param_dtype.
  bool cast_forward_inputs = true;
};

struct FullyShardOptions {
  // Frees the gathered parameters after the module's forward, and gathers them again in backward
  // (ZeRO-3). If false, they stay until backward is done with them (ZeRO-2): more memory, a third
  // less communication.
  bool reshard_after_forward = true;
  Reduce reduce = Reduce::Avg;  // of gradients; or Sum
  // Off: nothing overlaps with a collective. Auto, Always: the next module's parameters are
  // gathered while this one computes, and gradients are reduced while backward continues.
  Overlap overlap = Overlap::Auto;
  // A rank of the mesh, row-major, whose parameters all ranks cut, as the others'. Nothing: the
  // first gather of each group compares the parameters that were cut, and its first all_reduce
  // those of replicas.
  std::optional<int> src_data_rank = std::nullopt;
  MixedPrecisionPolicy mp_policy = {};
  // Along which dimension a parameter is cut: Shard(dim); nothing: as without this function, along
  // dimension 0. The same on all ranks.
  std::function<std::optional<Placement>(const Tensor& parameter)> shard_placement_fn = nullptr;
  // Parameters that stay as they are, gradients included, which nothing reduces; those of other
  // modules do not matter.
  std::vector<Tensor> ignored_params = {};
};

//   for (std::size_t i = 0; i < model.layers.size(); ++i) cs::fully_shard(model.layers[i], mesh);
//   cs::fully_shard(model, mesh);                        // the rest, and the order
//   cs::AdamW optimizer(model.parameters(), {.lr = 3e-4});  // of the shards
//
// Makes the parameters of `module` one group, except those already in a nested group: each becomes
// a DTensor, Shard(0) on `mesh` unless shard_placement_fn says otherwise, split as torch.chunk does
// from this rank's values, which must be the same on all ranks: seed them alike, load them, or pass
// src_data_rank. Inner modules first. While the module runs, its parameters are unsharded, as they
// were. Forward, backward and the optimizer are written as for one rank, each rank with its own
// rows of the batch; losses and gradients are those of DataParallel. Parameters that
// parallelize_module has sharded along other dimensions of the mesh are sharded again, and become
// DTensors on all of them: StridedShard along `mesh` where a later dimension has sharded the same
// rows. Any number of rows will do. Where no StridedShard says what the ranks then have (7 rows,
// tp=2, dp=3), the next tensor dimension with enough positions is cut; a vector then stays on the
// first rank of `mesh`.
//
// A mesh of two dimensions shards along the second and holds replicas of the shards along the first
// (HSDP): mesh.submesh({"replicate", "shard"}), DTensors in (R, S(0)). Ranks along both have rows
// of their own.
//
//   Moves:   before the module's forward, one all_gather of the group ("parameters"); before its
//            backward another, if its parameters were freed; one reduce_scatter ("gradients") of
//            the parameters that require a gradient, once the group's last is complete, and over
//            replicas an all_reduce of its result, chained to it. Each all_gather is prefetched:
//            issued just before the preceding group's forward, in the order recorded by the last
//            forward of the outermost sharded module, and in backward in the reverse order. The
//            first forward therefore prefetches nothing, nor do modules outside of every sharded
//            module.
//   Memory:  with reshard_after_forward, at most two successive groups are unsharded at a time,
//            frozen ones too: backward frees a group once it has come to the module's inputs and
//            the last gradient is complete. A group's collectives temporarily need as much again.
//   Grads:   those of the shards, in flight after backward(); Optimizer::step and clip_grad_norm
//            await them. Backward accumulates into existing gradients; parameters it does not reach
//            get none. They have the shards' dtype; those of several backwards are added up in the
//            wider of it and reduce_dtype, which takes memory for a second sum if it is wider than
//            the shards. grad() computes those of other tensors only. Gradients and hooks that
//            parameters had before fully_shard are dropped. What counts is requires_grad when
//            backward begins, and in a recomputed module when that runs again. A sum of a
//            replicated gradient and a partial one is partial.
//   Hooks:   those of register_post_accumulate_grad_hook run once the reduction of the parameter's
//            gradient has been issued.
//   Fails:   Error{BadInput}: a mesh of three dimensions or more, or without this rank; a module
//            that is sharded already, or part of one that is; a parameter without dimensions, tied
//            to one of another group or outside of the module, or with another dtype than the
//            group's others; another reduction; a dtype of mp_policy that is not floating-point;
//            anything but a Shard of its dimensions from shard_placement_fn; within capture; a
//            parameter that has been replaced since. In backward: parameters that were changed
//            since forward, or in a recomputed module have come to require a gradient too late; a
//            hook that replaces a gradient; create_graph; two backwards at once; run_backward.
//            Error{Unsupported}: a DTensor on a mesh that is not another slice of the same parent
//            mesh; a dimension from shard_placement_fn that no layout can cut so. Ranks that miss
//            different gradients fail at this or the next collective (Error{CommFailed} on all). So
//            do ranks that held different values of a parameter when it was cut, unless it has been
//            written to since, at the first gather; the error names the parameter.
void fully_shard(Module& module, const DeviceMesh& mesh, FullyShardOptions options = {},
                 CallSite site = CallSite::current());

// Keeps the parameters of a group unsharded outside of its forward, until reshard. They can be
// read, not written to. `module`: that of a call of fully_shard; groups within are left alone. An
// unsharded module is left as it is.
//   Resumes: when the parameters have arrived.
//   Moves:   an all_gather ("parameters"), unless they are gathered already.
//   Fails:   Error{BadInput}: another module. Its forward, if a shard was written to meanwhile.
Task<void> unshard(Module& module, CallSite site = CallSite::current());
// Frees them, except during a forward, which then does; a module that is not unsharded is left as
// it is. Error{BadInput}: as unshard.
void reshard(Module& module, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
