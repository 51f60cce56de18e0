#pragma once
// Scopes in which operators must not redistribute by themselves, and in which plain tensors may
// stand beside DTensors. Rank's thread; they belong to the branch of the program.
#include <cstdint>

namespace coshard {

// While one lives, an operator on this thread that would have to redistribute an input is
// Error{BadInput} naming operator, input and layouts (torch.distributed.tensor
// ExplicitRedistributionContext). Communication: only where it would communicate; Any: also the
// free changes (R -> S, R -> P); Off: nested, allows all again. redistribute() itself is always
// allowed. Backward obeys the scope it is called in. Do not hold one across a co_await that may
// run siblings.
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

// While one lives, a plain tensor beside DTensors stands for a Replicate on their mesh
// (torch.distributed.tensor.experimental.implicit_replication). Every rank must have the same one,
// which nobody checks. Without it that holds for tensors without dimensions alone.
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
