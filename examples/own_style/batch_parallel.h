#pragma once
// A user-defined style: data parallelism for any module, in ten lines. Parameters become replicas,
// every rank passes and gets its part of the batch; the optimizer sums the gradients.
#include <coshard/coshard.h>

struct BatchParallel {
  void apply(coshard::Module& module, const coshard::DeviceMesh& mesh,
             const coshard::ParallelizeOptions& options) const {
    const auto enter = [](auto&, coshard::Inputs& in, const coshard::DeviceMesh& on) {
      in.args[0] = coshard::from_local(in.args[0], on, coshard::Shard(0));
    };
    const auto leave = [](auto&, coshard::Outputs& out, auto&) { out[0] = to_local(out[0]); };
    coshard::distribute_module(module, mesh, {}, enter, leave, options);
  }
  friend std::ostream& operator<<(std::ostream& out, const BatchParallel&) {
    return out << "BatchParallel()";
  }
};
