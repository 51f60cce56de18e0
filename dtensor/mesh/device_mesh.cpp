#include <coshard/dtensor/mesh/device_mesh.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/iota.hpp>
#include <range/v3/view/zip.hpp>
#include <set>

#include <coshard/dtensor/mesh/layout.h>
#include <coshard/dtensor/mesh/spec.h>
#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/mesh/calibration.h"
#include "runtime/coro/user_call.h"
#include "runtime/launch/rank_hosts.h"
#include "runtime/printable.h"

namespace coshard {
namespace views = ranges::views;

// What a mesh and all its slices share. A dimension of a slice is a set of the root's dimensions,
// written as bits.
struct DeviceMesh::Root {
  struct Flat {
    std::string name;
    unsigned dims;
  };
  // Shared by all meshes with the same dimensions, since ranks may drop and recreate them at
  // different times.
  struct Shared {
    std::map<unsigned, std::shared_ptr<Communicator>> merged;  // by the bits of several dimensions
    std::array<Notes, kMaxMeshDims> notes;                     // by dimension
  };
  struct Slice {
    std::vector<unsigned> dims;
    std::vector<std::string> names;
    std::weak_ptr<const Impl> impl;
  };

  World* world;
  std::vector<int> shape;
  std::vector<std::string> names;
  std::vector<Link> links;
  std::shared_ptr<const Calibration> calibration;
  std::vector<int> ranks;
  std::vector<int> coordinate;  // empty when this rank is not in the mesh
  std::vector<Flat> flattened;
  std::vector<Slice> slices;
  std::map<std::vector<unsigned>, Shared> shared;

  // All dimensions in the sets `dims`, in order.
  static std::vector<int> listed(std::span<const unsigned> dims);
  // World ranks that share this rank's other coordinates (0 for a rank outside), row-major.
  std::vector<int> ranks_along(std::span<const unsigned> dims) const;
  int size_of(unsigned dims) const;
  Link link_of(unsigned dims) const;
  int coordinate_of(unsigned dims) const;
  void locate_this_rank();
};

struct DeviceMesh::Impl {
  std::shared_ptr<Root> root;
  Root::Shared* shared;        // the root's
  std::vector<unsigned> dims;  // of the root, as bits
  std::vector<int> shape;
  std::vector<std::string> names;
  std::vector<Link> links;
  std::vector<int> ranks;
  std::vector<int> coordinate;
  std::vector<std::shared_ptr<Communicator>> communicators;
};

std::vector<int> DeviceMesh::Root::listed(std::span<const unsigned> dims) {
  std::vector<int> list;
  for (unsigned set : dims)
    for (int d = 0; d < kMaxMeshDims; ++d)
      if (set >> d & 1U) list.push_back(d);
  return list;
}

std::vector<int> DeviceMesh::Root::ranks_along(std::span<const unsigned> dims) const {
  std::vector<int> strides(shape.size());
  std::exclusive_scan(shape.rbegin(), shape.rend(), strides.rbegin(), 1, std::multiplies<>());
  const std::vector<int> list = listed(dims);
  std::vector<int> places{0};
  for (const auto& [d, own, stride] : views::zip(views::iota(0), coordinate, strides))
    if (std::ranges::count(list, d) == 0) places[0] += own * stride;
  for (const int d : list) {
    const auto along = static_cast<std::size_t>(d);
    std::vector<int> next;
    for (const auto& [place, i] : views::cartesian_product(places, views::iota(0, shape[along])))
      next.push_back(place + i * strides[along]);
    places.swap(next);
  }
  for (int& place : places) place = ranks[static_cast<std::size_t>(place)];
  return places;
}

int DeviceMesh::Root::size_of(unsigned dims) const {
  int size = 1;
  for (int d : listed({&dims, 1})) size *= shape[static_cast<std::size_t>(d)];
  return size;
}

Link DeviceMesh::Root::link_of(unsigned dims) const { return slowest(links, dims); }

void DeviceMesh::Root::locate_this_rank() {
  const auto found = std::ranges::find(ranks, world->rank());
  if (found == ranks.end()) return;
  coordinate.resize(shape.size());
  auto rest = static_cast<int>(found - ranks.begin());
  for (std::size_t d = shape.size(); d-- > 0;) {
    coordinate[d] = rest % shape[d];
    rest /= shape[d];
  }
}

int DeviceMesh::Root::coordinate_of(unsigned dims) const {
  int index = 0;
  for (int d : listed({&dims, 1}))
    index = index * shape[static_cast<std::size_t>(d)] + coordinate[static_cast<std::size_t>(d)];
  return index;
}

namespace {

template <class Impl>
const Impl& made(const std::shared_ptr<Impl>& impl) {
  CS_REQUIRE(impl != nullptr, "DeviceMesh: the mesh is undefined");
  return *impl;
}

std::size_t checked_dim(const DeviceMesh& mesh, int dim, const char* who) {
  CS_REQUIRE(dim >= 0 && dim < mesh.ndim(), who, ": dimension ", dim, " is out of range for mesh ",
             mesh);
  return static_cast<std::size_t>(dim);
}

}  // namespace

int DeviceMesh::ndim() const { return static_cast<int>(made(impl_).shape.size()); }
int DeviceMesh::size() const { return static_cast<int>(made(impl_).ranks.size()); }
int DeviceMesh::size(int dim) const { return made(impl_).shape[checked_dim(*this, dim, "size")]; }
const std::vector<int>& DeviceMesh::shape() const { return made(impl_).shape; }
const std::vector<std::string>& DeviceMesh::names() const { return made(impl_).names; }
const std::vector<int>& DeviceMesh::ranks() const { return made(impl_).ranks; }
World& DeviceMesh::world() const {
  World* world = made(impl_).root->world;
  CS_REQUIRE(world == World::current(), "the world of the mesh ", *this,
             " has ended, or runs on another thread; call full_tensor() on a DTensor that is to "
             "outlive it");
  return *world;
}
const std::vector<Link>& DeviceMesh::links() const { return made(impl_).links; }
const std::shared_ptr<const Calibration>& DeviceMesh::calibration() const {
  return made(impl_).root->calibration;
}
bool DeviceMesh::contains_this_rank() const { return !made(impl_).coordinate.empty(); }
const std::vector<int>& DeviceMesh::coordinate() const { return made(impl_).coordinate; }

int DeviceMesh::local_rank() const {
  CS_REQUIRE(ndim() == 1, "local_rank: the mesh ", *this, " has ", ndim(),
             " dimensions; name one of them");
  return local_rank(0);
}

int DeviceMesh::local_rank(int dim) const {
  CS_REQUIRE(contains_this_rank(), "local_rank: rank ", world().rank(), " is not in the mesh ",
             *this);
  return impl_->coordinate[checked_dim(*this, dim, "local_rank")];
}

int DeviceMesh::dim(std::string_view name) const {
  const auto found = std::ranges::find(names(), name);
  CS_REQUIRE(found != names().end(), "the mesh ", *this, " has no dimension '", name, "'");
  return static_cast<int>(found - names().begin());
}

bool DeviceMesh::equal(const DeviceMesh& a, const DeviceMesh& b) {
  if (!a.impl_ || !b.impl_) return false;
  const auto &one = a.calibration(), &other = b.calibration();
  return &a.world() == &b.world() && a.shape() == b.shape() && a.names() == b.names() &&
         a.ranks() == b.ranks() && a.links() == b.links() &&
         (one == other || (one && other && *one == *other));
}

DeviceMesh DeviceMesh::slice(const std::shared_ptr<Root>& root, const std::vector<unsigned>& dims,
                             const std::vector<std::string>& names) {
  DeviceMesh mesh;
  std::erase_if(root->slices, [](const Root::Slice& old) { return old.impl.expired(); });
  for (const Root::Slice& known : root->slices) {
    if (known.dims != dims || known.names != names) continue;
    mesh.impl_ = known.impl.lock();
    return mesh;
  }
  auto impl = std::make_shared<Impl>();
  impl->root = root;
  impl->shared = &root->shared[dims];
  impl->dims = dims;
  impl->names = names;
  impl->ranks = root->ranks_along(dims);
  for (const auto& [dim, name] : views::zip(dims, names)) {
    impl->shape.push_back(root->size_of(dim));
    impl->links.push_back(root->link_of(dim));
    if (root->coordinate.empty()) continue;
    impl->coordinate.push_back(root->coordinate_of(dim));
    impl->communicators.push_back(root->world->group(root->ranks_along({&dim, 1}), name));
  }
  root->slices.push_back({dims, names, impl});
  mesh.impl_ = std::move(impl);
  return mesh;
}

DeviceMesh DeviceMesh::rooted(World& world, std::vector<int> ranks, std::vector<int> shape,
                              std::vector<std::string> names, std::vector<Link> links,
                              std::shared_ptr<const Calibration> calibration) {
  auto root = std::make_shared<Root>();
  root->world = &world;
  root->shape = std::move(shape);
  root->names = std::move(names);
  root->links = std::move(links);
  root->links.resize(root->shape.size());
  root->calibration = std::move(calibration);
  root->ranks = std::move(ranks);
  root->locate_this_rank();
  std::vector<unsigned> dims;
  for (std::size_t d = 0; d < root->shape.size(); ++d) dims.push_back(1U << d);
  return slice(root, dims, root->names);
}

DeviceMesh DeviceMesh::with_links(std::vector<Link> links, CallSite site) const {
  const UserCall user(site);
  CS_REQUIRE(static_cast<int>(links.size()) == ndim(), "with_links: ", links.size(),
             " links for the ", ndim(), " dimensions of the mesh ", *this);
  for (const Link& link : links) check(link, str_cat("with_links on the mesh ", *this, ": a link"));
  return rooted(world(), ranks(), shape(), names(), std::move(links), calibration());
}

DeviceMesh DeviceMesh::with_calibration(std::shared_ptr<const Calibration> measured,
                                        CallSite site) const {
  const UserCall user(site);
  return rooted(world(), ranks(), shape(), names(), links(), std::move(measured));
}

// The root's dimensions that a name stands for: one of this mesh, or several flattened ones.
unsigned DeviceMesh::mask_of(std::string_view name) const {
  for (const auto& [known, dims] : views::zip(names(), impl_->dims))
    if (known == name) return dims;
  for (const Root::Flat& flat : impl_->root->flattened) {
    if (flat.name != name) continue;
    unsigned mine = 0;  // dimensions of this mesh that it contains
    for (unsigned dims : impl_->dims)
      if ((dims & ~flat.dims) == 0) mine |= dims;
    if (mine == flat.dims) return flat.dims;
  }
  return 0;
}

DeviceMesh DeviceMesh::operator[](std::string_view name) const {
  const unsigned mask = mask_of(name);
  CS_REQUIRE(mask != 0, "mesh[\"", name, "\"]: the mesh ", *this, " has no dimension '", name, "'");
  return slice(impl_->root, {mask}, {std::string(name)});
}

DeviceMesh DeviceMesh::submesh(const std::vector<std::string>& names) const {
  CS_REQUIRE(!names.empty(), "submesh: name at least one dimension of the mesh ", *this);
  std::vector<unsigned> dims;
  unsigned before = 0;
  for (const std::string& name : names) {
    const unsigned mask = mask_of(name);
    CS_REQUIRE(mask != 0, "submesh: the mesh ", *this, " has no dimension '", name, "'");
    CS_REQUIRE((mask & before) == 0, "submesh: '", name, "' of the mesh ", *this,
               " is named twice, or is part of an earlier name");
    // It must lie above all earlier bits.
    CS_REQUIRE(std::countr_zero(mask) >= static_cast<int>(std::bit_width(before)), "submesh: '",
               name, "' is out of order; name dimensions in the order of the mesh ", *this);
    before |= mask;
    dims.push_back(mask);
  }
  return slice(impl_->root, dims, names);
}

DeviceMesh DeviceMesh::joined(const DeviceMesh& other) const {
  const Impl &one = made(impl_), &two = made(other.impl_);
  if (one.root != two.root) return {};
  std::map<int, std::pair<unsigned, std::string>> by_first;  // by the first dimension of each set
  unsigned all = 0;
  for (const Impl* impl : {&one, &two})
    for (const auto& [dim, name] : views::zip(impl->dims, impl->names)) {
      if ((all & dim) != 0) return {};
      all |= dim;
      by_first[std::countr_zero(dim)] = {dim, name};
    }
  std::vector<unsigned> dims;
  std::vector<std::string> names;
  for (const auto& [first, dim] : by_first) {
    dims.push_back(dim.first);
    names.push_back(dim.second);
  }
  return slice(one.root, dims, names);
}

DeviceMesh DeviceMesh::flatten(std::string name, CallSite site) const {
  const UserCall user(site);
  if (name.empty())
    for (const std::string& part : names()) name += (name.empty() ? "" : "_") + part;
  if (ndim() == 1 && name == impl_->names[0]) return *this;
  unsigned all = 0;
  for (unsigned dims : impl_->dims) all |= dims;
  bool known = false;
  for (const Root::Flat& flat : impl_->root->flattened) {
    if (flat.name != name) continue;
    CS_REQUIRE(flat.dims == all, "flatten: '", name, "' of the mesh ", *this,
               " already names other flattened dimensions");
    known = true;
  }
  CS_REQUIRE(std::ranges::count(impl_->root->names, name) == 0, "flatten: '", name,
             "' is already the name of a dimension of the mesh ", *this);
  if (!known) impl_->root->flattened.push_back({name, all});
  return slice(impl_->root, {all}, {name});
}

Communicator& DeviceMesh::communicator() const {
  CS_REQUIRE(ndim() == 1, "communicator: the mesh ", *this, " has ", ndim(),
             " dimensions; name one of them");
  return communicator(0);
}

Communicator& DeviceMesh::communicator(int dim) const {
  const World& here = world();
  CS_REQUIRE(contains_this_rank(), "communicator: rank ", here.rank(), " is not in the mesh ",
             *this);
  return *made(impl_).communicators[checked_dim(*this, dim, "communicator")];
}

Communicator& DeviceMesh::communicator(std::span<const int> dims) const {
  CS_REQUIRE(!dims.empty(), "communicator: name at least one dimension of the mesh ", *this);
  if (dims.size() == 1) return communicator(dims[0]);
  unsigned mine = 0;
  std::vector<unsigned> roots;  // in the order of this mesh: flattened ones may lie around others
  for (int d : dims) {
    CS_REQUIRE(d >= 0 && d < ndim() && mine >> d == 0, "communicator: dimension ", d,
               " is out of order or out of range for the mesh ", *this);
    mine |= 1U << d;
    roots.push_back(impl_->dims[static_cast<std::size_t>(d)]);
  }
  if (const auto known = impl_->shared->merged.find(mine); known != impl_->shared->merged.end())
    return *known->second;
  CS_REQUIRE(contains_this_rank(), "communicator: rank ", world().rank(), " is not in the mesh ",
             *this);
  std::string name;
  for (int d : dims) name += (name.empty() ? "" : "_") + impl_->names[static_cast<std::size_t>(d)];
  const auto joint = world().group(impl_->root->ranks_along(roots), name);
  for (int d : dims) joint->note(impl_->shared->notes[static_cast<std::size_t>(d)]);
  return *(impl_->shared->merged[mine] = joint);
}

void DeviceMesh::note(int dim, const Noted& done) const {
  if (size(dim) == 1) return;
  communicator(dim).note(done);
  impl_->shared->notes[static_cast<std::size_t>(dim)].add(done);
  for (const auto& [dims, joint] : impl_->shared->merged)
    if ((dims >> dim & 1U) != 0) joint->note(done);
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) {
  if (!mesh.defined()) return out << "no mesh";
  if (mesh.ndim() > 1) out << '(';
  for (int d = 0; d < mesh.ndim(); ++d)
    out << (d ? "," : "") << mesh.names()[static_cast<std::size_t>(d)] << '='
        << std::to_string(mesh.size(d));
  return mesh.ndim() > 1 ? out << ')' : out;
}

namespace {

std::string mesh_shape_text(const std::vector<int>& values) {
  std::string text;
  for (int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return "(" + text + ")";
}

void check_mesh(const char* what, const World& world, const std::vector<int>& ranks,
                const std::vector<int>& shape, const std::vector<std::string>& names) {
  const std::string text = mesh_shape_text(shape);
  CS_REQUIRE(!shape.empty(), what, ": a mesh needs at least one dimension");
  CS_REQUIRE(shape.size() <= kMaxMeshDims, what, ": shape ", text, " has more than ", kMaxMeshDims,
             " dimensions");
  std::int64_t product = 1;
  for (int size : shape) {
    CS_REQUIRE(size >= 1, what, ": size ", size, " in shape ", text);
    product *= size;
    CS_REQUIRE(product <= world.size(), what, ": shape ", text, " needs more ranks than the ",
               world.size(), " of the world");
  }
  CS_REQUIRE(product == static_cast<std::int64_t>(ranks.size()), what, ": shape ", text, " needs ",
             product, " ranks, got ", ranks.size());
  CS_REQUIRE(names.empty() || names.size() == shape.size(), what, ": ", names.size(),
             " names for the ", shape.size(), " dimensions of shape ", text);
  std::set<std::string> unique;
  for (const std::string& name : names) {
    CS_REQUIRE(!name.empty(), what, ": empty dimension name for shape ", text);
    CS_REQUIRE(unique.insert(name).second, what, ": duplicate dimension name '", name, "'");
  }
  std::set<int> seen;
  for (int rank : ranks) {
    CS_REQUIRE(rank >= 0 && rank < world.size(), what, ": rank ", rank, " is not one of the ",
               world.size(), " ranks of the world");
    CS_REQUIRE(seen.insert(rank).second, what, ": rank ", rank, " is listed twice");
  }
}

// Keeps a program that creates a mesh per step from accumulating them.
void forget_now_and_then() {
  constexpr int kOften = 64;
  static const RankLocal<int> made;
  if (++*made % kOften == 0) forget_dropped_meshes();
}

// All ranks; for a mesh of several dimensions, ranks of one host are adjacent.
std::vector<int> ranks_by_host(const World& world, const std::vector<int>& shape) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::vector<int>& hosts = *hosts_of_ranks;
  if (hosts.empty() || std::ranges::count_if(shape, [](int size) { return size > 1; }) < 2)
    return ranks;
  std::ranges::stable_sort(ranks, {},
                           [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; });
  return ranks;
}

// Warns, on rank 0 and once per shape, that the innermost dimension spans several hosts.
void warn_of_hosts(const DeviceMesh& mesh) {
  const std::vector<int>& hosts = *hosts_of_ranks;
  const auto inner = std::ranges::find_if(mesh.shape().rbegin(), mesh.shape().rend(),
                                          [](int size) { return size > 1; });
  if (mesh.world().rank() != 0 || hosts.empty() || *inner == mesh.size()) return;
  const auto on = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  const bool together =
      std::ranges::all_of(mesh.ranks() | ranges::views::chunk(*inner), [&](auto line) {
        return std::ranges::all_of(line, [&](int rank) { return on(rank) == on(line.front()); });
      });
  static const RankLocal<std::set<std::string>> told;
  if (together || !told->insert(str_cat(mesh)).second) return;
  const auto dim = static_cast<std::size_t>(mesh.shape().rend() - inner) - 1;
  std::vector<int> sizes(static_cast<std::size_t>(*std::ranges::max_element(hosts)) + 1);
  for (const int host : hosts) ++sizes[static_cast<std::size_t>(host)];
  const auto [least, most] = std::ranges::minmax(sizes);
  const std::string each = least == most ? str_cat(most) : str_cat(least, " to ", most);
  std::cerr << str_cat("warning: init_device_mesh: dimension ", printable(mesh.names()[dim]), '=',
                       *inner, " of ", printable(str_cat(mesh)), " spans hosts, which have ", each,
                       " of the ranks each\n")
            << std::flush;
}

}  // namespace

DeviceMesh DeviceMesh::from_ranks(World& world, std::vector<int> ranks, std::vector<int> shape,
                                  std::vector<std::string> names, CallSite site) {
  const UserCall user(site);
  forget_now_and_then();
  check_mesh("from_ranks", world, ranks, shape, names);
  if (names.empty())
    for (std::size_t d = 0; d < shape.size(); ++d) names.push_back("dim_" + std::to_string(d));
  return rooted(world, std::move(ranks), std::move(shape), std::move(names));
}

DeviceMesh init_device_mesh(World& world, std::vector<int> shape, std::vector<std::string> names,
                            CallSite site) {
  const UserCall user(site);
  std::vector<int> ranks = ranks_by_host(world, shape);
  check_mesh("init_device_mesh", world, ranks, shape, names);
  DeviceMesh mesh =
      DeviceMesh::from_ranks(world, std::move(ranks), std::move(shape), std::move(names));
  warn_of_hosts(mesh);
  return mesh;
}

}  // namespace coshard
