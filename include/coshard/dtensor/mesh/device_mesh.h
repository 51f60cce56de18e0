#pragma once
// An N-dimensional arrangement of ranks with one communicator per dimension. A cheap handle to
// immutable data; used on the rank's thread. Semantics follow torch.distributed.device_mesh.
//
// Any rank of the world can create any mesh. A communicator is created by its members only, when a
// mesh is created or flattened, and is shared by all meshes of the world; so the ranks of a mesh
// must create and flatten meshes in the same order; other ranks need not take part. A rank outside
// a mesh has no coordinate and no communicators there; tensors on the mesh are empty there, and
// operators on them issue nothing.
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/runtime/cost/link.h>
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

struct Calibration;  // what calibrate() has measured (calibrate.h)

class DeviceMesh {
 public:
  DeviceMesh() = default;
  // ranks: world ranks, each at most once, row-major over `shape`; names as for init_device_mesh.
  // Error{BadInput}: as init_device_mesh; a number of ranks other than the product of the shape; a
  // rank outside the world or listed twice.
  static DeviceMesh from_ranks(World& world, std::vector<int> ranks, std::vector<int> shape,
                               std::vector<std::string> names = {},
                               CallSite site = CallSite::current());

  bool defined() const { return impl_ != nullptr; }
  int ndim() const;
  int size() const;         // product of all dimensions
  int size(int dim) const;  // ranks along `dim`
  int size(std::string_view name) const { return size(dim(name)); }
  int dim(std::string_view name) const;  // Error{BadInput} lists the known names
  const std::vector<int>& shape() const;
  const std::vector<std::string>& names() const;
  const std::vector<int>& ranks() const;  // world ranks, row-major over the shape
  World& world() const;                   // Error{BadInput} once it has ended

  // --- link costs ---

  // Per dimension; 5 us and 10 GB/s unless set or measured. Plans and operators' choices of layout
  // depend on these costs alone, so they must be equal on all ranks. Slices inherit them; a
  // flattened dimension has those of its slowest part.
  const std::vector<Link>& links() const;
  // The same ranks, shape, names and communicators with other links: a different mesh, whose
  // tensors do not mix with this one's. Names created by flatten() are not carried over.
  // Error{BadInput}: not one link per dimension; a negative latency; a rate that is not above 0.
  DeviceMesh with_links(std::vector<Link> links, CallSite site = CallSite::current()) const;
  // What calibrate() has measured, apart from links; null: nothing. Slices inherit it.
  const std::shared_ptr<const Calibration>& calibration() const;
  DeviceMesh with_calibration(std::shared_ptr<const Calibration> measured,
                              CallSite site = CallSite::current()) const;

  // --- this rank ---
  bool contains_this_rank() const;
  // One coordinate per dimension; empty if this rank is not in the mesh.
  const std::vector<int>& coordinate() const;
  // This rank's coordinate along `dim`; without an argument, on a 1-D mesh. Error{BadInput} on a
  // rank outside the mesh, and without an argument on an N-D mesh.
  int local_rank() const;
  int local_rank(int dim) const;
  int local_rank(std::string_view name) const { return local_rank(dim(name)); }

  // --- slices ---

  // The sub-mesh of the named dimensions through this rank, in this mesh's order; names created by
  // flatten() work like any other. Uses this mesh's communicators and creates none.
  // Error{BadInput}: a name that is unknown, repeated, or out of order.
  DeviceMesh operator[](std::string_view name) const;
  DeviceMesh submesh(const std::vector<std::string>& names) const;
  // The mesh of the dimensions of this slice and of `other`, in the order of the mesh that both are
  // slices of; undefined if they are slices of different meshes or share a dimension. Creates no
  // communicators.
  DeviceMesh joined(const DeviceMesh& other) const;
  // All dimensions of this mesh flattened into one, named "a_b" by default. The first call, by all
  // ranks of the slice together, creates one communicator; later calls create none. The name can be
  // used in later slices of this mesh and of the mesh it is a slice of. Error{BadInput}: a name
  // already taken by a dimension, or by other flattened dimensions.
  DeviceMesh flatten(std::string name = {}, CallSite site = CallSite::current()) const;

  // --- communicators ---
  // Along `dim`; without an argument, of a 1-D mesh. Here and below, Error{BadInput} on a rank
  // outside the mesh, and without an argument on an N-D mesh.
  Communicator& communicator() const;
  Communicator& communicator(int dim) const;
  Communicator& communicator(std::string_view name) const { return communicator(dim(name)); }
  // Over several dimensions flattened: at least one, in ascending order, ranks row-major. Created
  // on first use by the ranks that differ only in these dimensions; flatten() uses the same one.
  Communicator& communicator(std::span<const int> dims) const;
  // Communicator::note on every communicator of this mesh that spans dimension `dim`, alone or with
  // others, including those created later. Does nothing where `dim` has one rank.
  void note(int dim, const Noted& done) const;

  // Number of handles to this mesh.
  long holders() const { return impl_.use_count(); }
  // One per mesh object: equal ids are equal meshes.
  const void* id() const { return impl_.get(); }
  // The same world, ranks, shape, names, links and calibration.
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
    return a.impl_ == b.impl_ || equal(a, b);
  }

 private:
  struct Root;
  struct Impl;
  static bool equal(const DeviceMesh& a, const DeviceMesh& b);
  // Missing links are Link().
  static DeviceMesh rooted(World& world, std::vector<int> ranks, std::vector<int> shape,
                           std::vector<std::string> names, std::vector<Link> links = {},
                           std::shared_ptr<const Calibration> calibration = nullptr);
  static DeviceMesh slice(const std::shared_ptr<Root>& root, const std::vector<unsigned>& dims,
                          const std::vector<std::string>& names);
  unsigned mask_of(std::string_view name) const;

  std::shared_ptr<const Impl> impl_;
};

// shape: at most 6 sizes whose product is world.size(); names: one per dimension, else "dim_0", …
// Row-major over ranks, in several dimensions host by host (docs/launch.md). Error{BadInput}: any
// other product; a size < 1; names that repeat, are empty, or differ in number.
DeviceMesh init_device_mesh(World& world, std::vector<int> shape,
                            std::vector<std::string> names = {},
                            CallSite site = CallSite::current());

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);  // tp=4 or (dp=2,tp=4)

}  // namespace coshard
#pragma GCC visibility pop
