#pragma once
// Scopes in which operators may not redistribute implicitly, or may mix plain tensors with
// DTensors. Rank's thread; a scope belongs to its branch (branch.h).
#include <cstdint>

#pragma GCC visibility push(default)
namespace coshard {

// While one is alive, an operator of this branch that would have to redistribute an input fails
// with Error{BadInput}, which names operator, input and layouts (torch.distributed.tensor's
// ExplicitRedistributionContext). Communication: only if it would communicate. Any: also free
// changes (R -> S, R -> P). Off: for a nested scope, allows all again. redistribute() itself is
// always allowed. Backward obeys the scope it is called in. Do not keep one open across a co_await
// that may run siblings.
class ExplicitRedistribution {
 public:
  enum class Forbid : std::uint8_t { Off, Communication, Any };
  explicit ExplicitRedistribution(Forbid forbid = Forbid::Communication);
  ~ExplicitRedistribution();
  ExplicitRedistribution(const ExplicitRedistribution&) = delete;
  ExplicitRedistribution& operator=(const ExplicitRedistribution&) = delete;

 private:
  Forbid before_;
};

// While one is alive, a plain tensor beside DTensors counts as Replicate on their mesh
// (torch.distributed.tensor.experimental.implicit_replication). Every rank must open the same
// scope; this is not checked. Outside such a scope, this holds for tensors without dimensions only.
class ImplicitReplication {
 public:
  ImplicitReplication();
  ~ImplicitReplication();
  ImplicitReplication(const ImplicitReplication&) = delete;
  ImplicitReplication& operator=(const ImplicitReplication&) = delete;

 private:
  bool before_;
};

}  // namespace coshard
#pragma GCC visibility pop
