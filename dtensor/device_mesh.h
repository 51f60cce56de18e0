#pragma once
// An N-dimensional arrangement of ranks with a communicator for each of its dimensions. A cheap
// handle to immutable data, made collectively by all ranks of a world; used on the rank's thread.
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch/world.h"

namespace coshard {

class DeviceMesh {
 public:
  DeviceMesh() = default;
  bool defined() const { return impl_ != nullptr; }
  int ndim() const;
  int size() const;                   // product of all dimensions
  int size(int dim) const;            // ranks along `dim`
  int local_rank(int dim = 0) const;  // this rank's coordinate along `dim`
  const std::vector<int>& shape() const;
  const std::vector<std::string>& names() const;
  const std::vector<int>& ranks() const;  // world ranks, row-major over the shape
  bool contains_this_rank() const;
  Communicator& communicator(int dim) const;
  World& world() const;
  const void* id() const { return impl_.get(); }  // one per mesh object: equal ids are equal meshes
  friend bool operator==(const DeviceMesh& a, const DeviceMesh& b);

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
  friend DeviceMesh init_device_mesh(World&, std::vector<int>, std::vector<std::string>);
};

// shape: sizes whose product is world.size(); names: one per dimension or none. Ranks lie
// row-major. Collective: all ranks call it in the same order. Error{BadInput} for a product that
// differs, a size < 1, names that repeat or differ in number.
DeviceMesh init_device_mesh(World& world, std::vector<int> shape,
                            std::vector<std::string> names = {});

std::ostream& operator<<(std::ostream& out, const DeviceMesh& mesh);  // tp=4 or (dp=2,tp=4)

}  // namespace coshard
