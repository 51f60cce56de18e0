#include "dtensor/device_mesh.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/error.h"

namespace coshard {

struct DeviceMesh::Impl {
  World* world;
  std::vector<int> shape;
  std::vector<std::string> names;
  std::vector<int> ranks;
  std::vector<int> coordinate;  // empty when this rank is not in the mesh
  std::vector<std::shared_ptr<Communicator>> communicators;
};

int DeviceMesh::ndim() const { return static_cast<int>(impl_->shape.size()); }
int DeviceMesh::size() const { return static_cast<int>(impl_->ranks.size()); }
int DeviceMesh::size(int dim) const { return impl_->shape.at(static_cast<std::size_t>(dim)); }
int DeviceMesh::local_rank(int dim) const {
  return impl_->coordinate.at(static_cast<std::size_t>(dim));
}
const std::vector<int>& DeviceMesh::shape() const { return impl_->shape; }
const std::vector<std::string>& DeviceMesh::names() const { return impl_->names; }
const std::vector<int>& DeviceMesh::ranks() const { return impl_->ranks; }
bool DeviceMesh::contains_this_rank() const { return !impl_->coordinate.empty(); }
Communicator& DeviceMesh::communicator(int dim) const {
  return *impl_->communicators.at(static_cast<std::size_t>(dim));
}
World& DeviceMesh::world() const { return *impl_->world; }

bool operator==(const DeviceMesh& a, const DeviceMesh& b) {
  if (a.impl_ == b.impl_) return true;
  if (!a.impl_ || !b.impl_) return false;
  return a.impl_->world == b.impl_->world && a.impl_->shape == b.impl_->shape &&
         a.impl_->names == b.impl_->names && a.impl_->ranks == b.impl_->ranks;
}

namespace {

std::string show(const std::vector<int>& values) {
  std::string text;
  for (int value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return "(" + text + ")";
}

void check_shape(const World& world, const std::vector<int>& shape,
                 const std::vector<std::string>& names) {
  CS_REQUIRE(!shape.empty(), "init_device_mesh: a mesh needs at least one dimension");
  int product = 1;
  for (int size : shape) {
    CS_REQUIRE(size >= 1, "init_device_mesh: size ", size, " in shape ", show(shape));
    product *= size;
  }
  CS_REQUIRE(product == world.size(), "init_device_mesh: shape ", show(shape), " has ", product,
             " places, the world has ", world.size(), " ranks");
  CS_REQUIRE(names.empty() || names.size() == shape.size(), "init_device_mesh: ", names.size(),
             " names for ", shape.size(), " dimensions");
  const std::set<std::string> unique(names.begin(), names.end());
  CS_REQUIRE(unique.size() == names.size(), "init_device_mesh: a dimension name repeats");
}

}  // namespace

DeviceMesh init_device_mesh(World& world, std::vector<int> shape, std::vector<std::string> names) {
  check_shape(world, shape, names);
  if (names.empty())
    for (std::size_t i = 0; i < shape.size(); ++i) names.push_back("dim_" + std::to_string(i));
  auto impl = std::make_shared<DeviceMesh::Impl>();
  impl->world = &world;
  impl->shape = shape;
  impl->names = names;
  impl->ranks.resize(static_cast<std::size_t>(world.size()));
  std::iota(impl->ranks.begin(), impl->ranks.end(), 0);
  impl->coordinate.resize(shape.size());
  for (int rest = world.rank(), d = static_cast<int>(shape.size()); d-- > 0;) {
    impl->coordinate[static_cast<std::size_t>(d)] = rest % shape[static_cast<std::size_t>(d)];
    rest /= shape[static_cast<std::size_t>(d)];
  }
  int stride = world.size();
  for (std::size_t d = 0; d < shape.size(); ++d) {
    stride /= shape[d];
    const int base = world.rank() - impl->coordinate[d] * stride;
    std::vector<int> members(static_cast<std::size_t>(shape[d]));
    for (int i = 0; i < shape[d]; ++i) members[static_cast<std::size_t>(i)] = base + i * stride;
    impl->communicators.push_back(world.group(members, names[d]));
  }
  DeviceMesh mesh;
  mesh.impl_ = std::move(impl);
  return mesh;
}

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh) {
  if (!mesh.defined()) return out << "no mesh";
  if (mesh.ndim() > 1) out << '(';
  for (int d = 0; d < mesh.ndim(); ++d)
    out << (d ? "," : "") << mesh.names()[static_cast<std::size_t>(d)] << '=' << mesh.size(d);
  return mesh.ndim() > 1 ? out << ')' : out;
}

}  // namespace coshard
