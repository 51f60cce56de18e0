#pragma once
// GatheredColumns: a module's output features are sharded over the mesh, and gathered for whoever
// comes next, so that inputs and outputs are plain tensors, the same on all ranks. A value.
#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/styles/distribute_module.h>

namespace coshard {

struct GatheredColumns {
  void apply(Module& module, const DeviceMesh& mesh, const ParallelizeOptions& options) const {
    const std::optional<ShardAxes> axes = module.shard_axes(ShardBy::Columns);
    CS_REQUIRE(axes, "GatheredColumns: '", module.path(), "' is a ", module.type_name());
    const auto shard = [&](const std::string& path, Module& part, const DeviceMesh& on) {
      if (!path.empty()) return;  // a module below this one
      for (const auto& [name, placement] : axes->parameters) {
        Tensor& slot = part.parameter(name);
        slot = distribute_tensor(slot, on, placement, options.src_data_rank);
      }
    };
    const auto enter = [](Module&, Inputs& in, const DeviceMesh& on) {
      in.args[0] = from_local(in.args[0], on, Replicate());
    };
    const auto leave = [](Module&, Outputs& out, const DeviceMesh&) {
      out[0] = to_local(redistribute(out[0], Replicate()).tensor());
    };
    distribute_module(module, mesh, shard, enter, leave, options);
  }
};

}  // namespace coshard
