#pragma once
// The mesh that is meant where none is given.
//
//   cs::DefaultMesh scope(mesh);
//   cs::DTensor x = cs::zeros(cs::Shard(0), {8, 4});
//   co_await cs::parallelize_module(model, plan);
//
// While a scope lives, the functions that take a mesh can be called without one. Scopes nest; the
// outer mesh is restored at the end of the inner one. They belong to the branch of the program
// (coshard/runtime/coro/branch.h): siblings of a when_all do not see each other's, and see the one
// that was open where the when_all was called.
#include <coshard/dtensor/device_mesh.h>

namespace coshard {

class DefaultMesh {
 public:
  explicit DefaultMesh(DeviceMesh mesh);
  ~DefaultMesh();
  DefaultMesh(const DefaultMesh&) = delete;
  DefaultMesh& operator=(const DefaultMesh&) = delete;

  // The mesh of the innermost scope. Error{BadInput} names `what`, which needs one.
  static DeviceMesh current(const char* what);

 private:
  DeviceMesh outer_;  // undefined: none; may outlive the scope that it comes from (co_spawn)
};

}  // namespace coshard
