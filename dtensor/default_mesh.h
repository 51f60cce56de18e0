#pragma once
// The mesh that is meant where none is given.
//
//   cs::DefaultMesh scope(mesh);
//   cs::DTensor x = cs::zeros(cs::Shard(0), {8, 4});
//   co_await cs::parallelize_module(model, plan);
//
// While a scope lives, the functions that take a mesh can be called without one. Scopes nest; the
// outer mesh is restored at the end of the inner one. One stack per rank (its thread): a scope is
// held in a function or a task that the rank runs, and not across a co_await that lets siblings of
// a when_all run, for they would see it too.
#include "dtensor/device_mesh.h"

namespace coshard {

class DefaultMesh {
 public:
  explicit DefaultMesh(DeviceMesh mesh);
  ~DefaultMesh();
  DefaultMesh(const DefaultMesh&) = delete;
  DefaultMesh& operator=(const DefaultMesh&) = delete;

  // The mesh of the innermost scope. Error{BadInput} names `what`, which needs one.
  static const DeviceMesh& current(const char* what);

 private:
  DeviceMesh mesh_;
  const DefaultMesh* outer_;
};

}  // namespace coshard
