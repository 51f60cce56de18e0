#include <coshard/dtensor/distribute/deferred_init.h>

#include <utility>

#include <coshard/runtime/coro/branch.h>
#include "dtensor/ops/recipe.h"
#include "runtime/coro/user_call.h"
#include "runtime/device/graph.h"

namespace coshard {
namespace {

const BranchLocal<bool> deferring;

}  // namespace

DeferredInit::DeferredInit() : outer_(deferring.get()) { deferring.own() = true; }
DeferredInit::~DeferredInit() { deferring.own() = outer_; }

bool defers_init() { return deferring.get(); }

MakeNow::MakeNow(bool pauses) : paused_(pauses && deferring.get() ? &Branch::current() : nullptr) {
  if (paused_ != nullptr) deferring.own() = false;
}
// A destroyed coroutine may have outlived its branch.
MakeNow::~MakeNow() {
  if (paused_ != nullptr && paused_ == &Branch::current()) deferring.own() = true;
}

bool is_deferred(const Tensor& x) { return recipe_of(x) != nullptr; }

void materialize(const Tensor& x, CallSite site) {
  const UserCall user(site);
  const std::shared_ptr<Recipe> recipe = recipe_of(x);
  if (!recipe) return;
  require_not_recording(*x.device(), "materialize", "allocate parameters");
  take_memory(x, recipe->made());
  recipe->compare_with_next();
}

}  // namespace coshard
