#include "styles/module_change.h"

#include <unordered_map>

#include <coshard/dtensor/tape.h>

namespace coshard {
namespace {

// The producer of a replaced handle.
class Replaced final : public GradNode {
 public:
  explicit Replaced(std::string_view who) : who_(who) {}
  std::string_view name() const override { return who_; }
  bool records_backward() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink&) override {
    fail(ErrorKind::BadInput,
         str_cat("backward: a gradient ", output_grads[0], " reaches a parameter that ", who_,
                 " has replaced; take it from "
                 "the module again"));
  }

 private:
  std::string_view who_;
};

}  // namespace

ModuleChange::ModuleChange(Module& root) : root_(root), random_(random_state()) {
  for (const auto& [path, module] : root.named_modules()) {
    parts_.push_back(
        {module, module->pre_hooks_, module->post_hooks_, module->claims_, module->overlapping_});
    for (const auto& [name, slot] : module->parameters_)
      slots_.push_back({module, name, slot, *slot, slot->defined() && slot->requires_grad()});
  }
}

void ModuleChange::require_same_shapes(std::string_view who) const {
  for (const Slot& each : slots_) {
    const Tensor& now = *each.slot;
    if (!each.before.defined() || !now.defined() || now.id() == each.before.id()) continue;
    const std::string path = each.module->path().empty() ? "" : each.module->path() + ".";
    const auto& meta = each.before.grad_meta();
    CS_REQUIRE(meta == nullptr || meta->collector.expired(), who, " would replace parameter '",
               path, each.name,
               "', whose gradients a DataParallel sums; create the DataParallel afterwards");
    CS_REQUIRE(now.shape() == each.before.shape(), who, " gives parameter '", path, each.name,
               "' the shape ", now.shape(), ", but it is ", each.before.shape(),
               ", and forward counts on that; distribute_tensor takes the whole tensor, from_local "
               "one shard of it");
  }
}

void ModuleChange::require_no_ties_outside(std::string_view who) const {
  Module* top = &root_;
  while (top->parent_ != nullptr) top = top->parent_;
  if (top == &root_) return;
  std::unordered_map<const void*, const Slot*> replaced;
  for (const Slot& each : slots_)
    if (each.before.defined() && each.before.id() != each.slot->id())
      replaced.emplace(each.before.id(), &each);
  for (const NamedParameter& p : top->named_slots()) {
    const auto found = replaced.find(p.slot->id());
    if (found == replaced.end()) continue;
    const auto& [module, name, slot, before, requires_grad] = *found->second;
    fail(ErrorKind::BadInput,
         str_cat(who, ": parameter '", module->path(), module->path().empty() ? "" : ".", name,
                 "' (", before, ") is tied to '", p.name, "', which is outside of ",
                 root_.type_name(), " '", root_.path(), "' and would keep the old tensor; give ",
                 who, " a module that holds both"));
  }
}

void ModuleChange::undo() {
  for (const Part& part : parts_) {
    part.module->pre_hooks_ = part.pre_hooks;
    part.module->post_hooks_ = part.post_hooks;
    part.module->claims_ = part.claims;
    part.module->overlapping_ = part.overlapping;
  }
  for (Slot& each : slots_) {
    *each.slot = each.before;
    if (each.before.defined() && each.before.requires_grad() != each.requires_grad)
      each.before.set_requires_grad(each.requires_grad);
  }
  set_random_state(random_);
}

void ModuleChange::keep(std::string_view who) const {
  for (const Slot& each : slots_) {
    const Tensor& old = each.before;
    if (!old.defined() || !old.is_leaf() || old.id() == each.slot->id()) continue;
    // The same meta for all that refer to it, such as an earlier forward.
    auto meta = old.grad_meta() ? old.grad_meta() : std::make_shared<GradMeta>();
    meta->producer = std::make_shared<Replaced>(who);
    push_record(meta->producer, {}, {});  // gives it a sequence number of its own
    old.set_grad_meta(std::move(meta));
  }
}

}  // namespace coshard
