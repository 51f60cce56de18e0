#include "dtensor/redistribute/plan.h"

#include <unordered_map>

#include "dtensor/redistribute/bind.h"
#include "runtime/error.h"

namespace coshard {
namespace {

std::unique_ptr<RedistributePlan> make_plan(const std::shared_ptr<const Spec>& source,
                                            const Layout& target) {
  auto plan = std::make_unique<RedistributePlan>();
  const DeviceMesh& mesh = source->mesh;
  plan->source = source;
  plan->target = make_spec(mesh, target, source->shape);
  Holdings holdings(mesh.shape(), source->shape);
  for (const PlanStep& step : plan_steps(mesh.shape(), source->shape, source->layout, target))
    plan->steps.push_back(bind(holdings, mesh, step));
  return plan;
}

}  // namespace

const RedistributePlan& plan_for(const std::shared_ptr<const Spec>& source, const Layout& target) {
  thread_local std::unordered_map<const Spec*, std::vector<std::unique_ptr<RedistributePlan>>>
      table;
  auto& plans = table[source.get()];
  for (const auto& plan : plans)
    if (plan->target->layout == target) return *plan;
  CS_REQUIRE(target.ndim() == source->mesh.ndim(), "redistribute: layout ", target, " has ",
             target.ndim(), " entries, the mesh ", source->mesh, " has ", source->mesh.ndim(),
             " dimensions");
  const Layout normal = normalize(target, source->shape, "redistribute");
  if (!(normal == target)) return plan_for(source, normal);
  plans.push_back(make_plan(source, target));
  return *plans.back();
}

}  // namespace coshard
