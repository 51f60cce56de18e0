#pragma once
// Which rank holds which bytes of tensors. Ranks may have a tensor on meshes of their own: what
// fully_shard cuts over one dimension of a mesh is there once for each place in the others. Rank's
// thread.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/checkpoint/byte_region.h"

namespace coshard {

// The ranks and the layout of a tensor that lies whole on a mesh. Without ranks: plain, whole on
// each.
struct Holding {
  std::vector<int> mesh_shape, ranks;
  Layout layout;
  bool operator==(const Holding&) const = default;
};

class HeldTensor {
 public:
  // `holdings`: what each rank says; `element_bytes`: of its elements in the file.
  HeldTensor(std::vector<std::shared_ptr<const Holding>> holdings, const Shape& shape,
             std::int64_t element_bytes);
  const ByteRegion& part(int rank);
  // Each writer gets every byte from one rank: itself if it holds it, else one of its mesh.
  bool gives(int rank, int writer);

 private:
  struct Mesh;
  Mesh& mesh_of(int rank);

  std::vector<std::shared_ptr<const Holding>> holdings_;  // by rank
  Shape shape_;
  std::int64_t element_bytes_;
  std::vector<std::shared_ptr<Mesh>> meshes_;  // those asked for
};

// Of tensors that all ranks have in the same order, those of their files' types. Two all_gathers on
// World::files().
Task<std::vector<HeldTensor>> holders_of(World& world, std::vector<Tensor> tensors,
                                         std::vector<DType> types);

}  // namespace coshard
