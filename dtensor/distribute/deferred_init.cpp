#include <coshard/dtensor/distribute/deferred_init.h>

#include <utility>

#include "dtensor/ops/recipe.h"
#include "runtime/coro/user_call.h"
#include "runtime/device/graph.h"

namespace coshard {

DeferredInit::DeferredInit() : outer_(defers_init()) { set_defers_init(true); }
DeferredInit::~DeferredInit() { set_defers_init(outer_); }

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
