#pragma once
// A debug mode: the first operator whose Replicate output differs between ranks. Rank's thread.
#include <coshard/dtensor/ops/op.h>
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// While one is alive on every rank, each operator except views reports the hash of its Replicate
// outputs to its mesh: ranks with different bits fail at their next wait on that mesh
// (Error{CommFailed} on all), with the operator, both hashes and the line. If a layout is Replicate
// along some mesh dimensions, along those. Not while a step is captured.
//   Cost: every such output is copied to the host and read once, and one barrier per operator and
//         mesh dimension is issued, hidden from observers and awaited by nobody.
class ReplicaGuard final : private Observer {
 public:
  explicit ReplicaGuard(World& world);
  ~ReplicaGuard() override;
  ReplicaGuard(const ReplicaGuard&) = delete;
  ReplicaGuard& operator=(const ReplicaGuard&) = delete;

  // For dispatch, on a rank that is observed: does nothing unless a guard is alive.
  static void look_at(const OpDef& op, const OpContext& made);

 private:
  World& world_;
};

}  // namespace coshard
#pragma GCC visibility pop
