#include "dtensor/redistribute/plan.h"

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/error.h>
#include "dtensor/mesh/bounded_cache.h"
#include "dtensor/redistribute/lower.h"

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

std::shared_ptr<const RedistributePlan> make_plan(const std::shared_ptr<const Spec>& source,
                                                  const Layout& target, int width) {
  auto plan = std::make_shared<RedistributePlan>();
  const DeviceMesh& mesh = source->mesh;
  plan->source = source;
  plan->target = make_spec(mesh, target, source->shape);
  plan->width = width;
  ShardMap shard_map(mesh.shape(), source->shape);
  const auto steps =
      plan_steps(mesh.shape(), source->shape, width, source->layout, target, mesh.links());
  plan->outline = outline(mesh, steps);
  for (const PlanStep& step : steps) plan->steps.push_back(lower(shard_map, mesh, step));
  return plan;
}

std::size_t bytes_of(const StridedBlocks& blocks) { return blocks.size() * sizeof(StridedBlock); }
std::size_t bytes_of(const Counts& counts) {
  return counts ? counts->size() * sizeof(std::int64_t) : 0;
}

struct PlanKind {
  static constexpr std::string_view kName = "plans";
  static constexpr bool kKeepsUsed = false;
  static std::size_t bytes_of(const RedistributePlan& plan) {
    std::size_t bytes = plan.steps.size() * sizeof(Step);
    for (const Step& step : plan.steps) {
      bytes += coshard::bytes_of(step.pack) + coshard::bytes_of(step.unpack);
      const Collective& c = step.collective;
      for (const Counts* counts : {&c.counts, &c.scatter_counts, &c.send_counts, &c.recv_counts})
        bytes += coshard::bytes_of(*counts);
    }
    return bytes;
  }
  static bool lies_on(const RedistributePlan& plan, const void* mesh) {
    return plan.source->mesh.id() == mesh;
  }
};

// A cached outline, for a rank outside the mesh.
struct Answer {
  std::shared_ptr<const Spec> source;
  Layout target;
  int width;
  PlanOutline outline;
};
struct AnswerKind {
  static constexpr std::string_view kName = "outlines";
  static constexpr bool kKeepsUsed = false;
  static std::size_t bytes_of(const Answer&) { return 0; }
  static bool lies_on(const Answer& answer, const void* mesh) {
    return answer.source->mesh.id() == mesh;
  }
};

// By address: the source is interned, and the entry keeps it alive.
std::uint64_t hash_of(const std::shared_ptr<const Spec>& source) {
  std::uint64_t hash = 0;
  mix_in(hash, reinterpret_cast<std::uintptr_t>(source.get()));
  return hash;
}

int width_of(DType dtype) { return static_cast<int>(size_of(dtype)); }

}  // namespace

std::shared_ptr<const RedistributePlan> plan_for(const std::shared_ptr<const Spec>& source,
                                                 const Layout& target, DType dtype) {
  static const RankLocal<BoundedCache<RedistributePlan, PlanKind>> plans;
  const std::uint64_t hash = hash_of(source);
  const int width = width_of(dtype);
  const auto matches = [&](const RedistributePlan& plan) {
    return plan.source == source && plan.target->layout == target && plan.width == width;
  };
  if (const auto* found = plans->find(hash, matches)) return *found;
  CS_REQUIRE(target.ndim() == source->mesh.ndim(), "redistribute: layout ", target, " has ",
             target.ndim(), " entries, the mesh ", source->mesh, " has ", source->mesh.ndim(),
             " dimensions");
  const Layout normal = normalize(target, source->shape, "redistribute");
  if (!(normal == target)) return plan_for(source, normal, dtype);
  return plans->add(hash, make_plan(source, target, width));
}

PlanOutline outline_of(const std::shared_ptr<const Spec>& source, const Layout& target,
                       DType dtype) {
  if (source->mesh.contains_this_rank()) return plan_for(source, target, dtype)->outline;
  static const RankLocal<BoundedCache<Answer, AnswerKind>> answers;
  const std::uint64_t hash = hash_of(source);
  const int width = width_of(dtype);
  const auto matches = [&](const Answer& answer) {
    return answer.source == source && answer.target == target && answer.width == width;
  };
  if (const auto* found = answers->find(hash, matches)) return (*found)->outline;
  const DeviceMesh& mesh = source->mesh;
  const auto steps =
      plan_steps(mesh.shape(), source->shape, width, source->layout, target, mesh.links());
  const Answer answer{source, target, width, outline(mesh, steps)};
  return answers->add(hash, std::make_shared<const Answer>(answer))->outline;
}

}  // namespace coshard
