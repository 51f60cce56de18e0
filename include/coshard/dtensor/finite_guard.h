#pragma once
// A debug mode: the first loss or gradient that is not finite is an error where it appears. Rank's
// thread.
#include <string_view>

#include <coshard/dtensor/tape.h>
#include <coshard/runtime/launch/world.h>

namespace coshard {

// While one lives, `backward` on this rank looks at its loss, and at every gradient that the
// backward of an operator gives: Error{BadInput} on the rank that has a nan or an infinity in its
// part, in the same step, which names rank, module path, operator and tensor. The other ranks fail
// with it as with any failure of a peer. Cost: every gradient is copied to the host and read once,
// and on a device that queues its work the host waits for each; expect a backward several times as
// long. Gradients in flight are looked at where they arrive. Not while a step is captured.
class FiniteGuard final : private Observer {
 public:
  explicit FiniteGuard(World& world);
  ~FiniteGuard() override;
  FiniteGuard(const FiniteGuard&) = delete;
  FiniteGuard& operator=(const FiniteGuard&) = delete;

 private:
  World& world_;
};

// For backward: nothing unless a guard lives. `what`: "the loss", "a gradient given by".
bool guards_finite();
void require_finite(const Tensor& x, std::string_view what, std::string_view operation,
                    const std::shared_ptr<const std::string>& module);

}  // namespace coshard
