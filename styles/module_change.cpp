#include "styles/module_change.h"

#include <algorithm>
#include <unordered_map>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/ops/local.h"
#include "dtensor/tensor/copied_view.h"

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

// What is the same for all that share memory: of a copied view, what it shows a part of.
const void* memory_of(const Tensor& x) {
  return x.copied_view() ? memory_of(x.copied_view()->of) : x.storage()->buffer.get();
}

// Of tensors that share memory. What a copied view shows may be any part of it.
bool have_common_elements(const Tensor& a, const Tensor& b) {
  return a.copied_view() || b.copied_view() || share_elements(a, b);
}

}  // namespace

// A handle that a change has replaced (ModuleChange::keep) has a producer without inputs.
void require_not_computed(std::string_view who, std::string_view name, const Tensor& parameter) {
  const auto& producer = parameter.grad_meta() ? parameter.grad_meta()->producer : nullptr;
  CS_REQUIRE(!producer || producer->inputs.empty(), who, ": parameter '", name, "' (", parameter,
             ") was made by ", producer->name(),
             ", and would be a parameter of its own afterwards; compute it in forward, or register "
             "a detach().clone() of it");
}

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
    const auto& meta = each.before.grad_meta();
    const bool is_summed = meta != nullptr && !meta->collector.expired();
    if (!is_summed && now.shape() == each.before.shape()) continue;
    const std::string path = each.module->path().empty() ? "" : each.module->path() + ".";
    CS_REQUIRE(!is_summed, who, " would replace parameter '", path, each.name,
               "', whose gradients a DataParallel sums; create the DataParallel afterwards");
    fail(ErrorKind::BadInput,
         str_cat(
             who, " gives parameter '", path, each.name, "' the shape ", now.shape(),
             ", but it is ", each.before.shape(),
             ", and forward counts on that; distribute_tensor takes the whole tensor, from_local "
             "one shard of it"));
  }
}

void ModuleChange::require_ties_kept(std::string_view who) const {
  Module* top = &root_;
  while (top->parent_ != nullptr) top = top->parent_;
  std::unordered_map<const Tensor*, const Slot*> within;
  for (const Slot& each : slots_) within.emplace(each.slot, &each);
  struct Named {
    std::string name;
    const Slot* slot;  // null: outside of the module
    Tensor before;
  };
  std::vector<Named> all;
  for (const NamedParameter& p : top->named_slots()) {
    const auto found = within.find(p.slot);
    const Slot* slot = found == within.end() ? nullptr : found->second;
    const Tensor& before = slot ? slot->before : *p.slot;
    if (before.defined()) all.push_back({p.name, slot, before});
  }
  std::unordered_map<const void*, std::vector<const Named*>> by_memory;
  for (const Named& p : all) by_memory[memory_of(p.before)].push_back(&p);
  for (const Named& p : all) {
    if (!p.slot || p.before.id() == p.slot->slot->id()) continue;
    require_not_computed(who, p.name, p.before);
    for (const Named* each : by_memory[memory_of(p.before)]) {
      const Named& other = *each;
      const bool is_same = other.before.id() == p.before.id();
      CS_REQUIRE(!is_same || other.slot, who, ": parameter '", p.name, "' (", p.before,
                 ") is tied to '", other.name, "', which is outside of ", root_.type_name(), " '",
                 root_.path(), "' and would keep the old tensor; give ", who,
                 " a module that holds both");
      CS_REQUIRE(is_same || !have_common_elements(p.before, other.before), who, ": parameters '",
                 p.name, "' (", p.before, ") and '", other.name, "' (", other.before,
                 ") share memory but are two tensors, which would be two parameters afterwards; "
                 "tie them by registering one tensor in both slots, or clone() one");
    }
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
