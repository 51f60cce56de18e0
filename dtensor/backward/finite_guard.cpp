#include <coshard/dtensor/backward/finite_guard.h>

#include <algorithm>
#include <cmath>

#include <coshard/runtime/coro/rank_context.h>
#include "dtensor/capture/step_graph.h"

namespace coshard {
namespace {

struct FiniteGuards {
  int count = 0;
};
const RankLocal<FiniteGuards> guards;

}  // namespace

// Registers as an observer, so that records are given their modules.
FiniteGuard::FiniteGuard(World& world) : world_(world) {
  world.add_observer(this);
  ++guards->count;
}
FiniteGuard::~FiniteGuard() {
  --guards->count;
  world_.remove_observer(this);
}

bool guards_finite() { return guards->count > 0; }

void require_finite(const Tensor& x, std::string_view what, std::string_view operation,
                    const std::shared_ptr<const std::string>& module) {
  if (!guards_finite() || !x.defined() || !is_floating(x.dtype()) || x.in_flight() ||
      StepGraph::recording() != nullptr)
    return;
  const std::vector<double> values = x.raw_local().to_vector();
  const auto bad =
      std::ranges::find_if_not(values, [](double value) { return std::isfinite(value); });
  if (bad == values.end()) return;
  const std::exception_ptr error = std::make_exception_ptr(Error(
      ErrorKind::BadInput, str_cat(what, ' ', operation, ", ", x, ", has ", *bad, " at element ",
                                   bad - values.begin(), " of the local tensor")));
  if (World* const world = World::current()) world->module_left(module ? *module : "", error);
  std::rethrow_exception(error);
}

}  // namespace coshard
