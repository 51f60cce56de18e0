#include <coshard/dtensor/mesh/default_mesh.h>

#include <utility>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>

namespace coshard {
namespace {

const BranchLocal<DeviceMesh> default_mesh;

}  // namespace

DefaultMesh::DefaultMesh(DeviceMesh mesh) : outer_(default_mesh.get()) {
  CS_REQUIRE(mesh.defined(), "DefaultMesh: the mesh is undefined");
  default_mesh.own() = std::move(mesh);
}

DefaultMesh::~DefaultMesh() { default_mesh.own() = outer_; }

DeviceMesh DefaultMesh::current(const char* what) {
  const DeviceMesh& innermost = default_mesh.get();
  CS_REQUIRE(innermost.defined(), what, ": no mesh was given and no DefaultMesh scope is open");
  return innermost;
}

}  // namespace coshard
