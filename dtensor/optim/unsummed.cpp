#include "dtensor/optim/unsummed.h"

#include <map>

#include "dtensor/capture/step_graph.h"
#include "dtensor/distribute/replicas.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tensor/local.h"

namespace coshard {
namespace {

// Why ranks that hold the same parameter must not have other gradients.
std::string about(const std::string& name, const Tensor& parameter, bool owed) {
  constexpr std::string_view kOwn =
      "varies(parameter, mesh, dim) if each rank trains its own; an optimizer that reduces "
      "gradients itself sets check_replicas = 0";
  const std::string what = name + " is equal on them, but its gradient is not";
  if (!owed)
    return str_cat(what,
                   "; they read other data, drew other random numbers, or hold a term each: sum it "
                   "by all_reduce_gradients(parameters, mesh, dim) after backward, or say ",
                   kOwn);
  const std::string_view from = parameter.grad_meta()->terms.from;
  return str_cat(what, ", since it was used", from.empty() ? "" : " by ", from,
                 " with shards or terms of that dimension, and nothing has summed it; give its "
                 "module a style that makes it a DTensor (SequenceParallel, NoParallel), call "
                 "all_reduce_gradients(parameters, mesh, dim) after backward, or say ",
                 kOwn);
}

}  // namespace

void compare_gradients(const std::vector<Tensor>& parameters, bool again) {
  std::uint64_t beside = 0;
  for (const Tensor& p : parameters)
    if (again && p.is_distributed()) beside |= p.spec()->mesh_marks;
  std::map<std::uint64_t, ReplicaHashes> along;  // by mark
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    const Tensor g = p.grad();
    if (!g.defined()) continue;
    GradMeta& meta = *p.grad_meta();
    const std::uint64_t own = all_own_along(p);
    const std::uint64_t owed = not_covered(g.marks(), own | meta.terms.summed);
    std::uint64_t wanted = again ? owed : owed & ~meta.judged_along;
    if (!p.is_distributed()) wanted |= beside & ~own;
    if (wanted == 0) continue;
    const std::string name = name_of_parameter(p, i, parameters.size());
    if (StepGraph::recording() != nullptr) {
      CS_REQUIRE((owed & ~meta.compared_along) == 0, name,
                 " has a gradient that differs by rank along ", names_of(owed),
                 " and has not been compared yet; run the step once before it is captured");
      continue;
    }
    const std::uint64_t value = bits_hash(p), gradient = bits_hash(g);
    meta.compared_along |= wanted;
    if (gradient != hash_of_zeros(g)) meta.judged_along |= wanted;  // zeros say nothing yet
    for (; wanted != 0; wanted &= wanted - 1) {
      ReplicaHashes& all = along[wanted & -wanted];
      all.of.push_back(&meta);
      all.names.push_back(name);
      all.hashes.push_back(value);
      all.gradients.push_back(gradient);
      all.about.push_back(about(name, p, (owed & wanted & -wanted) != 0));
    }
  }
  for (const auto& [mark, all] : along) communicator_of(mark).compare_with_next(all);
}

}  // namespace coshard
