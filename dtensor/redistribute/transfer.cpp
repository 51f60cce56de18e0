#include <coshard/dtensor/redistribute/transfer.h>

#include <algorithm>
#include <optional>

#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/rank_context.h>
#include "dtensor/mesh/bounded_cache.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/issue.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

// One side of a transfer: the region each of its ranks holds, and which ranks are replicas.
struct Side {
  explicit Side(const Spec& spec)
      : ranks(spec.mesh.ranks()), layout(spec.layout), shard_map(spec.mesh.shape(), spec.shape) {
    for (int m = 0; m < layout.ndim(); ++m)
      if (!layout[m].is_sharded()) alike |= 1U << m;
  }

  // The position of a world rank in the mesh, row-major; -1 outside.
  int place(int rank) const {
    const auto at = std::ranges::find(ranks, rank);
    return at == ranks.end() ? -1 : static_cast<int>(at - ranks.begin());
  }
  Region region(int place) { return region_of(shard_map, layout, place); }

  const std::vector<int>& ranks;
  Layout layout;
  ShardMap shard_map;
  MeshDims alike = 0;  // mesh dimensions along which all hold the same
};

// Which replica of the part at position `from` sends to the target: the target itself if it is one,
// else each replica serves its share of the targets.
int sender(Side& source, int from, int target_rank, int target_place) {
  const std::vector<int>& replicas = source.shard_map.group(from, source.alike);
  const int own = source.place(target_rank);
  if (std::ranges::find(replicas, own) != replicas.end()) return own;
  return replicas[static_cast<std::size_t>(target_place) % replicas.size()];
}

// The region that rank `from` sends to rank `to`, if any.
std::optional<Region> sent(Side& source, Side& target, int from, int to) {
  const int place = source.place(from), goal = target.place(to);
  if (place < 0 || goal < 0 || sender(source, place, to, goal) != place) return std::nullopt;
  return intersect(source.region(place), target.region(goal));
}

Step make_transfer(const Spec& from, const std::shared_ptr<const Spec>& to) {
  World& world = from.mesh.world();
  std::vector<int> members = from.mesh.ranks();
  for (const int rank : to->mesh.ranks())
    if (std::ranges::find(members, rank) == members.end()) members.push_back(rank);
  std::ranges::sort(members);
  Side source(from), target(*to);
  Step step{};
  step.kind = StepKind::AllToAll;
  step.after = to;
  step.label = "transfer";
  step.communicator = world.group(members, "transfer").get();
  step.packs = step.unpacks = true;
  const int me = world.rank();
  std::vector<std::int64_t> send_counts, recv_counts;
  const auto add = [&](const std::optional<Region>& region, Side& side, StridedBlocks& blocks,
                       std::int64_t& total) {
    const std::int64_t count = region ? numel(*region) : 0;
    if (count > 0)
      for (const StridedBlock& block :
           blocks_of(*region, side.region(side.place(me)), *region, total))
        blocks.push_back(block);
    total += count;
    return count;
  };
  for (const int peer : members) {
    send_counts.push_back(add(sent(source, target, me, peer), source, step.pack, step.packed));
    recv_counts.push_back(add(sent(source, target, peer, me), target, step.unpack, step.unpacked));
  }
  step.collective.kind = CollectiveKind::AllToAll;
  step.collective.label = step.label;
  step.collective.shape = shape_to_compare(from.shape);
  step.collective.send_counts = std::make_shared<const std::vector<std::int64_t>>(send_counts);
  step.collective.recv_counts = std::make_shared<const std::vector<std::int64_t>>(recv_counts);
  return step;
}

struct Transfer {
  std::shared_ptr<const Spec> from, to;
  Step step;
};
struct TransferKind {
  static constexpr std::string_view kName = "transfers";
  static constexpr bool kKeepsUsed = false;
  static std::size_t bytes_of(const Transfer& transfer) {
    const Step& step = transfer.step;
    return (step.pack.size() + step.unpack.size()) * sizeof(StridedBlock) +
           2 * step.collective.send_counts->size() * sizeof(std::int64_t);
  }
  static bool lies_on(const Transfer& transfer, const void* mesh) {
    return transfer.from->mesh.id() == mesh || transfer.to->mesh.id() == mesh;
  }
};

std::shared_ptr<const Transfer> transfer_for(const std::shared_ptr<const Spec>& from,
                                             const std::shared_ptr<const Spec>& to) {
  static const RankLocal<BoundedCache<Transfer, TransferKind>> transfers;
  std::uint64_t hash = reinterpret_cast<std::uintptr_t>(from.get());
  mix_in(hash, reinterpret_cast<std::uintptr_t>(to.get()));
  const auto matches = [&](const Transfer& known) { return known.from == from && known.to == to; };
  if (const auto* found = transfers->find(hash, matches)) return *found;
  const Transfer made{from, to, make_transfer(*from, to)};
  return transfers->add(hash, std::make_shared<const Transfer>(made));
}

Tensor transfer(const DTensor& source, const std::shared_ptr<const Spec>& to) {
  const Tensor whole = redistribute_raw(source, partial_as_replicate(source.layout()));
  if (!whole.mesh().contains_this_rank() && !to->mesh.contains_this_rank()) {
    const Tensor nothing = Tensor::empty(source.device(), to, source.dtype());
    nothing.set_in_flight(Work());
    return nothing;
  }
  return run_step(whole, transfer_for(whole.spec(), to)->step);
}

class TransferNode final : public GradNode {
 public:
  explicit TransferNode(const Spec& source)
      : source_(make_spec(source.mesh, partial_as_replicate(source.layout), source.shape)) {}
  std::string_view name() const override { return "redistribute"; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    sink.accumulate(0, transfer(output_grads[0], source_));
  }

 private:
  std::shared_ptr<const Spec> source_;
};

}  // namespace

Redistribution redistribute(const DTensor& source, const DeviceMesh& mesh, const Layout& target,
                            CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(source.defined() && source.is_distributed(), "redistribute: ", source,
             " is a plain tensor; from_local makes it a DTensor");
  if (mesh == source.mesh()) return redistribute(source, target);
  CS_REQUIRE(mesh.defined() && &mesh.world() == &source.mesh().world(), "redistribute: ", source,
             " to a mesh of another world");
  CS_REQUIRE(target.ndim() == mesh.ndim(), "redistribute: layout ", target, " has ", target.ndim(),
             " entries, the mesh ", mesh, " has ", mesh.ndim(), " dimensions");
  CS_REQUIRE(!target.has_partial(), "redistribute: ", source, " to ", target, " on ", mesh,
             ": a target on another mesh cannot be Partial");
  const Layout wanted = normalize(target, source.shape(), "redistribute");
  Tensor result = transfer(source, make_spec(mesh, wanted, source.shape()));
  const Tensor inputs[] = {source};
  if (taped(inputs))
    push_record(std::make_shared<TransferNode>(*source.spec()), inputs,
                std::span<Tensor>(&result, 1));
  return Redistribution(result);
}

}  // namespace coshard
