#pragma once
// A change of a module that is made whole or not at all. Rank's thread.
#include <string_view>
#include <vector>

#include <coshard/dtensor/random.h>
#include <coshard/styles/module.h>

namespace coshard {

// Remembers the module and all below it: the tensors in their slots and whether they require
// gradients, the hooks, what styles have claimed, and the position in the random stream.
class ModuleChange {
 public:
  explicit ModuleChange(Module& root);
  // Puts all of it back.
  void undo();
  // Keeps what was changed. Handles whose slot has another tensor by now are replaced by `who`
  // (static text): no leaves any more, so that an optimizer over one, or a backward into it, is an
  // error that says so.
  void keep(std::string_view who) const;

 private:
  struct Slot {
    Tensor* slot;
    Tensor before;
    bool requires_grad;
  };
  struct Part {
    Module* module;
    std::vector<PreHook> pre_hooks;
    std::vector<PostHook> post_hooks;
    std::vector<std::string> claims;
  };
  std::vector<Slot> slots_;
  std::vector<Part> parts_;
  RandomState random_;
};

}  // namespace coshard
