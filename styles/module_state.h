#pragma once
// What an API such as fully_shard keeps for a module, and does around its calls. Rank's thread.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <coshard/dtensor/tape/tape.h>
#include <coshard/styles/module.h>

namespace coshard {

class ModuleState {
 public:
  virtual ~ModuleState() = default;
  // The module that it was made for; modules below that have it too.
  virtual const Module& module() const = 0;

  // Before a call: makes the parameters usable for the lifetime of the result. Adds to `arriving`
  // what to await.
  virtual std::shared_ptr<void> enter(std::vector<Tensor>& arriving) = 0;
  // After it, with its outputs: backward through them is over once it has reached the record number
  // `behind`, which made the newest input.
  virtual void leave(std::vector<Tensor>& outputs, std::uint64_t behind) = 0;
  // Whether this input, or any of these outputs, is cast.
  virtual bool casts(const Tensor& input) const = 0;
  virtual bool casts(const Outputs& outputs) const = 0;
  virtual void cast_inputs(Inputs& inputs) const = 0;  // those that have arrived
  virtual void cast_outputs(Outputs& outputs) const = 0;
};

// The number of the newest record behind a forward with these inputs.
inline std::uint64_t newest_behind(const Inputs& inputs) {
  std::uint64_t newest = 0;
  const auto look = [&](const Tensor& x) {
    if (x.defined() && x.requires_grad() && x.grad_meta()->producer)
      newest = std::max(newest, x.grad_meta()->producer->sequence);
  };
  for (const Tensor& x : inputs.args) look(x);
  for (const auto& named : inputs.kwargs) look(named.second);
  return newest > 0 ? newest : newest_record();
}

}  // namespace coshard
