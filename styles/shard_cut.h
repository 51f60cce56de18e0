#pragma once
// How fully_shard cuts a parameter that other dimensions of the mesh may have cut before.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include "dtensor/redistribute/shard_map.h"

namespace coshard {

struct ShardCut {
  std::shared_ptr<const Spec> spec;  // of the shards
  int dim = 0;                       // of the parameter, along which they are cut
  // By rank along the mesh's last dimension: positions along `dim` in what this rank has of the
  // parameter.
  std::vector<Ranges> kept;
};

// Cuts x over the last dimension of `mesh`; its others hold replicas. `wanted`: as Shard(dim);
// nothing: along dimension 0 or, where no layout says what the ranks would then hold, another one.
// Each rank keeps only what it has of x already. `name`: for errors, which are those of
// fully_shard.
ShardCut shard_cut(const std::string& name, const Tensor& x, const DeviceMesh& mesh,
                   const std::optional<Placement>& wanted);

}  // namespace coshard
