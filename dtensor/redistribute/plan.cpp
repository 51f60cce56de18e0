#include "dtensor/redistribute/plan.h"

#include <unordered_map>

#include "dtensor/redistribute/bind.h"
#include "runtime/coro/rank_context.h"
#include "runtime/error.h"

namespace coshard {
namespace {

PlanOutline outline(const DeviceMesh& mesh, std::span<const PlanStep> steps) {
  PlanOutline seen;
  for (const PlanStep& step : steps) seen.communicates |= communicates(step.kind);
  if (steps.empty() || steps.back().kind != StepKind::AllGather) return seen;
  for (int m = 0; m < mesh.ndim(); ++m)
    if (has(steps.back().dims, m)) seen.shards *= mesh.size(m);
  return seen;
}

std::unique_ptr<RedistributePlan> make_plan(const std::shared_ptr<const Spec>& source,
                                            const Layout& target) {
  auto plan = std::make_unique<RedistributePlan>();
  const DeviceMesh& mesh = source->mesh;
  plan->source = source;
  plan->target = make_spec(mesh, target, source->shape);
  Holdings holdings(mesh.shape(), source->shape);
  const auto steps = plan_steps(mesh.shape(), source->shape, source->layout, target, mesh.links());
  plan->outline = outline(mesh, steps);
  for (const PlanStep& step : steps) plan->steps.push_back(bind(holdings, mesh, step));
  return plan;
}

}  // namespace

const RedistributePlan& plan_for(const std::shared_ptr<const Spec>& source, const Layout& target) {
  using Plans = std::unordered_map<const Spec*, std::vector<std::unique_ptr<RedistributePlan>>>;
  static const RankLocal<Plans> table;
  auto& plans = (*table)[source.get()];
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

PlanOutline outline_of(const std::shared_ptr<const Spec>& source, const Layout& target) {
  if (source->mesh.contains_this_rank()) return plan_for(source, target).outline;
  struct Answer {
    std::shared_ptr<const Spec> source;
    Layout target;
    PlanOutline outline;
  };
  static const RankLocal<std::unordered_map<const Spec*, std::vector<Answer>>> answers;
  auto& known = (*answers)[source.get()];
  for (const Answer& answer : known)
    if (answer.target == target) return answer.outline;
  const DeviceMesh& mesh = source->mesh;
  known.push_back({source, target,
                   outline(mesh, plan_steps(mesh.shape(), source->shape, source->layout, target,
                                            mesh.links()))});
  return known.back().outline;
}

}  // namespace coshard
