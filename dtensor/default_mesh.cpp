#include "dtensor/default_mesh.h"

#include "runtime/coro/branch.h"
#include "runtime/error.h"

namespace coshard {
namespace {

const BranchLocal<const DefaultMesh*> innermost_default_mesh;

}  // namespace

DefaultMesh::DefaultMesh(DeviceMesh mesh)
    : mesh_(std::move(mesh)), outer_(innermost_default_mesh.get()) {
  CS_REQUIRE(mesh_.defined(), "DefaultMesh: the mesh is undefined");
  innermost_default_mesh.own() = this;
}

DefaultMesh::~DefaultMesh() { innermost_default_mesh.own() = outer_; }

const DeviceMesh& DefaultMesh::current(const char* what) {
  const DefaultMesh* innermost = innermost_default_mesh.get();
  CS_REQUIRE(innermost, what, ": no mesh was given and no DefaultMesh scope is open");
  return innermost->mesh_;
}

}  // namespace coshard
