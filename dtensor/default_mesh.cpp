#include "dtensor/default_mesh.h"

#include "runtime/error.h"

namespace coshard {
namespace {

thread_local const DefaultMesh* innermost_default_mesh = nullptr;

}  // namespace

DefaultMesh::DefaultMesh(DeviceMesh mesh) : mesh_(std::move(mesh)), outer_(innermost_default_mesh) {
  CS_REQUIRE(mesh_.defined(), "DefaultMesh: the mesh is undefined");
  innermost_default_mesh = this;
}

DefaultMesh::~DefaultMesh() { innermost_default_mesh = outer_; }

const DeviceMesh& DefaultMesh::current(const char* what) {
  CS_REQUIRE(innermost_default_mesh, what, ": no mesh was given and no DefaultMesh scope is open");
  return innermost_default_mesh->mesh_;
}

}  // namespace coshard
