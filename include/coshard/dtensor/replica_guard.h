#pragma once
// A debug mode: the first operator whose Replicate output differs between ranks. Rank's thread.
#include <coshard/dtensor/ops/op.h>
#include <coshard/runtime/launch/world.h>

namespace coshard {

// While one lives on every rank, each operator (but views) tells its mesh the hash of an output
// that is Replicate: ranks that have other bits there fail at their next wait for that mesh
// (Error{CommFailed} on all), with the operator, both hashes and the line. Of a layout that is
// Replicate along some mesh dimensions, along these. Cost: every such output is copied to the host
// and read once, and one barrier per operator and mesh dimension is issued, of which observers are
// not told and for which nobody waits. Not while a step is captured.
class ReplicaGuard final : private Observer {
 public:
  explicit ReplicaGuard(World& world);
  ~ReplicaGuard() override;
  ReplicaGuard(const ReplicaGuard&) = delete;
  ReplicaGuard& operator=(const ReplicaGuard&) = delete;

  // For dispatch, of a rank that is observed: nothing unless a guard lives.
  static void look_at(const OpDef& op, const OpContext& made);

 private:
  World& world_;
};

}  // namespace coshard
