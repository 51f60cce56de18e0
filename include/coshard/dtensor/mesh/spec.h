#pragma once
// What makes a tensor a DTensor: its mesh, its layout and its logical shape. Interned per thread,
// so that two equal specs are one object and caches compare pointers.
#include <memory>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/mesh/layout.h>
#include <coshard/dtensor/mesh/shape.h>

#pragma GCC visibility push(default)
namespace coshard {

struct Spec {
  DeviceMesh mesh;
  Layout layout;
  Shape shape;        // logical
  Shape local_shape;  // on this rank; [0] on a rank outside the mesh
  Shape offset;       // of this rank's shard in the logical tensor; 0 if it is not contiguous
  // For the library (dtensor/tape/marks.h): of the mesh's dimensions, and of those that are no
  // Replicate.
  std::uint64_t mesh_marks = 0, marks = 0;
};

// layout must be normalized and have one entry per mesh dimension; Error{BadInput} otherwise.
std::shared_ptr<const Spec> make_spec(const DeviceMesh& mesh, const Layout& layout,
                                      const Shape& shape);
// Drops what this rank caches for meshes that only interned specs still refer to; specs of live
// tensors stay.
void forget_dropped_meshes();

// Size and offset of chunk `index` when `size` is split into n by torch.chunk, in whole units.
struct Chunk {
  std::int64_t size, offset;
};
Chunk chunk_of(std::int64_t size, std::int64_t n, std::int64_t index, std::int64_t unit = 1);

// The positions along tensor dimension `dim` that `coordinate` holds, in order, as ranges; mesh
// dimensions shard one after the other, the first one first.
struct Range {
  std::int64_t begin, end;
};
std::int64_t count_of(const std::vector<Range>& ranges);  // positions
std::vector<Range> ranges_of(const Layout& layout, const std::vector<int>& mesh_shape,
                             const std::vector<int>& coordinate, int dim, std::int64_t size);

// "f32[8,512] S(0) on tp=4": how every error shows a tensor.
std::string describe(const Spec& spec);

}  // namespace coshard
#pragma GCC visibility pop
