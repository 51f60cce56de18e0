#pragma once
// A debug mode: finds the first operator whose Replicate output differs between ranks. Rank's
// thread.
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// While one is alive on every rank, the ranks of a mesh compare hashes of the Replicate outputs of
// every operator except views: if bits differ, all fail at their next wait on that mesh with
// Error{CommFailed}, which names the operator, both hashes and the call site. So they do for plain
// tensors off the tape that a style reads as Replicate, such as a batch. A layout that is
// Replicate along only some mesh dimensions is compared along those. Inactive while a step is
// captured.
//   Cost: every such output is copied to the host and read once, and one barrier per output and
//         mesh dimension is issued, hidden from observers and never awaited.
class ReplicaGuard final : private Observer {
 public:
  explicit ReplicaGuard(World& world);
  ~ReplicaGuard() override;
  ReplicaGuard(const ReplicaGuard&) = delete;
  ReplicaGuard& operator=(const ReplicaGuard&) = delete;

  static bool is_active();  // on this rank

 private:
  World& world_;
};

}  // namespace coshard
#pragma GCC visibility pop
