#include <coshard/dtensor/distribute/replica_guard.h>

#include <coshard/runtime/coro/rank_context.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/distribute/replicas.h"
#include "dtensor/ops/output_check.h"
#include "dtensor/tensor/local.h"

namespace coshard {
namespace {

struct ReplicaGuards {
  int count = 0;
};
const RankLocal<ReplicaGuards> replica_guards;

// The barrier makes all ranks compare now, so that the error names the first operator that differs,
// not the last one before the next collective.
void tell(Communicator& communicator, const Noted& made) {
  communicator.note(made);
  Collective barrier;
  barrier.unobserved = true;
  barrier.label = "replica guard";
  const Work issued = communicator.issue(barrier);
}

void look_at(const OpDef& op, const OpContext& made) {
  if (StepGraph::recording() != nullptr) return;
  for (int i = 0; i < made.outputs; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Spec* spec = made.out_spec[at].get();
    if (spec == nullptr || !spec->mesh.contains_this_rank() || !made.out[at].defined()) continue;
    for (int m = 0; m < spec->mesh.ndim(); ++m)
      if (spec->layout[m].is_replicate() && spec->mesh.size(m) > 1)
        tell(spec->mesh.communicator(m), {op.name, "is the hash of its Replicate output",
                                          bits_hash(made.out[at]), static_cast<unsigned>(i)});
  }
}

}  // namespace

ReplicaGuard::ReplicaGuard(World& world) : world_(world) {
  world.add_observer(this);
  if (++replica_guards->count == 1) set_output_check(look_at);
}
ReplicaGuard::~ReplicaGuard() {
  if (--replica_guards->count == 0) set_output_check(nullptr);
  world_.remove_observer(this);
}

bool ReplicaGuard::is_active() { return replica_guards->count > 0; }

}  // namespace coshard
