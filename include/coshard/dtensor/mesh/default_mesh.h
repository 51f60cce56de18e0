#pragma once
// The mesh that is used where none is passed.
//
//   cs::DefaultMesh scope(mesh);
//   cs::DTensor x = cs::zeros(cs::Shard(0), {8, 4});
//   co_await cs::parallelize_module(model, plan);
//
// While a scope is open, functions that take a mesh can be called without one. Scopes nest; closing
// one restores the outer mesh. A scope belongs to its branch of the program
// (coshard/runtime/coro/branch.h): the tasks of a when_all start with the mesh that was current at
// the call and do not see each other's scopes.
#include <coshard/dtensor/mesh/device_mesh.h>

#pragma GCC visibility push(default)
namespace coshard {

class DefaultMesh {
 public:
  explicit DefaultMesh(DeviceMesh mesh);
  ~DefaultMesh();
  DefaultMesh(const DefaultMesh&) = delete;
  DefaultMesh& operator=(const DefaultMesh&) = delete;

  // The mesh of the innermost scope. Error{BadInput} if there is none; the message names `what`,
  // the caller.
  static DeviceMesh current(const char* what);

 private:
  DeviceMesh outer_;  // undefined: none; may outlive the scope it comes from (co_spawn)
};

}  // namespace coshard
#pragma GCC visibility pop
