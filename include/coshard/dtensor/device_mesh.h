#pragma once
// An N-dimensional arrangement of ranks with a communicator for each of its dimensions. A cheap
// handle to immutable data; used on the rank's thread. Semantics: torch.distributed.device_mesh.
//
// Every rank of the world may make any mesh. Communicators are made by their members alone, when a
// mesh is made or flattened, and shared by all meshes of the world: the ranks of a mesh do these in
// the same order, the others need not. A rank outside a mesh has no coordinate and no
// communicators; tensors on it are empty there and take part in nothing.
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/redistribute/cost.h>
#include <coshard/runtime/launch/world.h>

namespace coshard {

class DeviceMesh {
 public:
  DeviceMesh() = default;
  // ranks: any world ranks, each once, row-major over `shape`; names as for init_device_mesh.
  // Error{BadInput}: what init_device_mesh refuses, a number of ranks that is not the product of
  // the shape, a rank that is none of the world's or comes twice.
  static DeviceMesh from_ranks(World& world, std::vector<int> ranks, std::vector<int> shape,
                               std::vector<std::string> names = {},
                               CallSite site = CallSite::current());

  bool defined() const { return impl_ != nullptr; }
  int ndim() const;
  int size() const;         // product of all dimensions
  int size(int dim) const;  // ranks along `dim`
  int size(std::string_view name) const { return size(dim(name)); }
  int dim(std::string_view name) const;  // Error{BadInput} lists the names there are
  const std::vector<int>& shape() const;
  const std::vector<std::string>& names() const;
  const std::vector<int>& ranks() const;  // world ranks, row-major over the shape
  World& world() const;                   // Error{BadInput} once it has ended

  // --- what communication costs ---
  // Per dimension; 5 us and 10 GB/s where nobody has said or measured it. Plans and the layouts
  // that operators choose follow from these alone, so they must be equal on all ranks. Slices
  // inherit them; a flattened dimension is as slow as the slowest of its parts.
  const std::vector<LinkCost>& links() const;
  // The same ranks, shape and names, and communicators, with other links: another mesh, whose
  // tensors do not mix with this one's. Names that flatten() gave are not taken along.
  // Error{BadInput}: not one per dimension, a negative latency, a rate that is not above 0.
  DeviceMesh with_links(std::vector<LinkCost> links, CallSite site = CallSite::current()) const;

  // --- this rank ---
  bool contains_this_rank() const;
  // One number per dimension; empty when this rank is not in the mesh.
  const std::vector<int>& coordinate() const;
  // This rank's coordinate along one dimension; without one, of a 1-D mesh. Error{BadInput} on a
  // rank outside, and without a dimension on an N-D mesh.
  int local_rank() const;
  int local_rank(int dim) const;
  int local_rank(std::string_view name) const { return local_rank(dim(name)); }

  // --- PyTorch's names for the same; get_rank: this rank in the world ---
  const std::vector<std::string>& mesh_dim_names() const { return names(); }
  const std::vector<int>& get_coordinate() const { return coordinate(); }
  template <class... Dim>
  int get_local_rank(Dim... dim) const {
    return local_rank(dim...);
  }
  int get_rank() const { return world().rank(); }
  Communicator& get_group(int dim) const { return communicator(dim); }
  Communicator& get_group(std::string_view name) const { return communicator(dim(name)); }
  Communicator& get_group() const;  // of a 1-D mesh; Error{BadInput} on others
  DeviceKind device_type() const { return world().device()->kind(); }

  // --- slices ---
  // The sub-mesh of the named dimensions through this rank, in the order of this mesh; a name that
  // flatten() gave works like any other. No communicator is made: those of this mesh are used.
  // Error{BadInput}: a name that is none, that repeats, or that is out of order.
  DeviceMesh operator[](std::string_view name) const;
  DeviceMesh submesh(const std::vector<std::string>& names) const;
  // All dimensions of this mesh as one, by default named "a_b". Makes one communicator the first
  // time (the ranks of the slice do it together), none after; the name may be used in later slices
  // of this mesh and of the mesh it was cut from. Error{BadInput}: a name that a dimension has, or
  // that was given to other dimensions before.
  DeviceMesh flatten(std::string name = {}, CallSite site = CallSite::current()) const;

  // --- communication; Error{BadInput} on a rank outside ---
  Communicator& communicator(int dim) const;
  // Of several dimensions taken as one: ascending, at least one, ranks row-major over them. Made
  // the first time by the ranks that differ in these dimensions alone; the same that flatten()
  // makes.
  Communicator& communicator(std::span<const int> dims) const;
  // Communicator::note on every communicator of this mesh over dimension `dim` or over several that
  // have it among them, those included that are made later. Nothing where `dim` has one rank.
  void note(int dim, const Noted& done) const;

  long holders() const { return impl_.use_count(); }  // handles like this one
  const void* id() const { return impl_.get(); }  // one per mesh object: equal ids are equal meshes
  // Same world, ranks, shape, names and links.
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
    return a.impl_ == b.impl_ || equal(a, b);
  }

 private:
  struct Root;
  struct Impl;
  static bool equal(const DeviceMesh& a, const DeviceMesh& b);
  // Missing links are LinkCost().
  static DeviceMesh rooted(World& world, std::vector<int> ranks, std::vector<int> shape,
                           std::vector<std::string> names, std::vector<LinkCost> links = {});
  static DeviceMesh slice(const std::shared_ptr<Root>& root, const std::vector<unsigned>& dims,
                          const std::vector<std::string>& names);
  unsigned mask_of(std::string_view name) const;

  std::shared_ptr<const Impl> impl_;
};

// shape: at most 6 sizes whose product is world.size(); names: one per dimension, or none for
// "dim_0", "dim_1", … Ranks lie row-major. Error{BadInput} for a product that differs, a size < 1,
// names that repeat, are empty or differ in number.
DeviceMesh init_device_mesh(World& world, std::vector<int> shape,
                            std::vector<std::string> names = {},
                            CallSite site = CallSite::current());

// The mesh with links as they are now: times messages along each dimension, of each rank the best
// run, of all ranks the slowest, rounded to two digits, so that all ranks find the same and most
// runs do. Called by all ranks of the world at once, while nothing else is in flight; those outside
// the mesh learn the figures too. Collectives: a few dozen all_gathers per dimension, then one
// all_reduce over the world.
Task<DeviceMesh> measure_links(DeviceMesh mesh, CallSite site = CallSite::current());

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);  // tp=4 or (dp=2,tp=4)

}  // namespace coshard
