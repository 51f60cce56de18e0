#pragma once
// A debug mode: the first non-finite loss or gradient becomes an error where it appears. Rank's
// thread.
#include <string_view>

#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// While one is alive, `backward` on this rank checks its loss and every gradient that an operator's
// backward returns. A NaN or infinity in the local tensor is an Error{BadInput} on that rank, in
// the same step, that names rank, module path, operator and tensor; the other ranks fail as with
// any peer failure. Gradients in flight are checked when they arrive. Inactive while a step is
// captured.
//   Cost: every gradient is copied to the host and read once, and on a device with streams the host
//         waits for each; expect backward to take several times as long.
class FiniteGuard final : private Observer {
 public:
  explicit FiniteGuard(World& world);
  ~FiniteGuard() override;
  FiniteGuard(const FiniteGuard&) = delete;
  FiniteGuard& operator=(const FiniteGuard&) = delete;

 private:
  World& world_;
};

// For backward: whether a guard is alive on this rank.
bool guards_finite();
// For backward: does nothing unless a guard is alive. `what`: "the loss", "a gradient returned by".
void require_finite(const Tensor& x, std::string_view what, std::string_view operation,
                    const std::shared_ptr<const std::string>& module);

}  // namespace coshard
#pragma GCC visibility pop
