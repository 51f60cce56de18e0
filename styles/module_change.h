#pragma once
// A transactional change of a module: made in full or not at all. Rank's thread.
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/distribute/random.h>
#include <coshard/styles/module.h>

namespace coshard {

// Error{BadInput}: `who` would replace a parameter that an operator has made.
void require_not_computed(std::string_view who, std::string_view name, const Tensor& parameter);

// Snapshots the module and its submodules: the tensors in their slots and whether they require
// gradients, hooks, claims of styles, and the random state.
class ModuleChange {
 public:
  explicit ModuleChange(Module& root);
  // Error{BadInput}: `who` has changed the logical shape of a parameter.
  void require_same_shapes(std::string_view who) const;
  // Error{BadInput}: `who` has replaced a parameter that is tied to one outside of the module,
  // below the same root, which would keep the old tensor; or whose memory another parameter is a
  // view of.
  void require_ties_kept(std::string_view who) const;
  // Restores the snapshot.
  void undo();
  // Keeps the change. Handles whose slot now holds another tensor count as replaced by `who`
  // (static text): no longer leaves, so that an optimizer over one, or a backward into it, is an
  // error that says so.
  void keep(std::string_view who) const;

 private:
  struct Slot {
    Module* module;
    std::string name;
    Tensor* slot;
    Tensor before;
    bool requires_grad;
  };
  struct Part {
    Module* module;
    std::vector<PreHook> pre_hooks;
    std::vector<PostHook> post_hooks;
    std::vector<std::string> claims;
    Overlapping overlapping;
  };
  Module& root_;
  std::vector<Slot> slots_;
  std::vector<Part> parts_;
  RandomState random_;
};

}  // namespace coshard
