#include "runtime/device/sim/virtual_communicator.h"

#include <algorithm>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

using Transfers = std::vector<std::shared_ptr<Transfer>>;

// What moves in one round of a gather by shards.
Collective round_of(const Collective& gather, int ranks) {
  Collective round = gather;
  round.kind = CollectiveKind::Send;
  round.extent = shard_extent(gather.counts, gather.extent, ranks, 0).size;
  round.counts = nullptr;
  return round;
}

// Its transfer is queued, so waits do not block the host; they advance the compute stream's clock.
class VirtualWork final : public WorkState {
 public:
  // One transfer that brings the parts one by one or together, or a round for each but its own.
  VirtualWork(std::shared_ptr<VirtualCommunicator> on, Transfers transfers, int parts)
      : communicator_(std::move(on)), transfers_(std::move(transfers)), parts_(parts) {}
  // Parts arrive in the order rank, rank+1, rank+2, …
  void wait(int part) override {
    check_part(part);
    const int after = (part - communicator_->rank() + parts_) % parts_;
    if (part < 0 || after == parts_ - 1) return wait_for_all();
    const std::int64_t begin = compute().now;
    wait_until_arrived(after);
    Observer* watching = observer();
    if (watching != nullptr && compute().now > begin)
      watching->stalled(event, begin, compute().now);
  }
  Poll poll(Poller by, int part) override {
    if (by == Poller::Query) check_part(part);
    return Poll::Done;
  }
  WorkInfo info(int) const override { return {.waits_for_peers = false}; }

  CommEvent event;

 private:
  void wait_for_all() {
    communicator_->throw_if_poisoned();
    const std::int64_t begin = compute().now, done = wait_until_arrived(parts_ - 1);
    if (told_) return;
    told_ = true;
    if (Observer* watching = observer()) {
      watching->awaiting(event);
      watching->ready(event, begin, done, compute().now);
    }
  }
  VirtualStream& compute() const { return communicator_->device().compute_stream(); }
  Observer* observer() const { return event.id != 0 ? communicator_->observer() : nullptr; }
  std::int64_t wait_until_arrived(int part) {
    const bool rounds = transfers_.size() > 1;
    if (rounds && part == 0) return compute().now;  // its own
    const auto i = static_cast<std::size_t>(part);
    const Transfer& transfer = *transfers_[rounds ? i - 1 : 0];
    const std::int64_t at =
        communicator_->link().wait_for(transfer, std::min(rounds ? 0 : i, transfer.parts - 1));
    compute().wait_until(at);
    return at;
  }
  void check_part(int part) const {
    CS_REQUIRE(part >= kAll && part < parts_, "part ", part, " is out of range for ", parts_,
               " parts");
  }

  std::shared_ptr<VirtualCommunicator> communicator_;
  Transfers transfers_;
  int parts_;
  bool told_ = false;
};

}  // namespace

VirtualCommunicator::VirtualCommunicator(std::shared_ptr<VirtualNetwork> network,
                                         std::vector<int> members, int rank, std::string name)
    : network_(std::move(network)),
      members_(std::move(members)),
      rank_(rank),
      name_(std::move(name)),
      model_(network_->link_of(name_, members_)),
      link_(network_->links[model_.name]) {
  if (!link_) link_ = network_->links[model_.name] = std::make_shared<SharedLink>();
}

void VirtualCommunicator::throw_if_poisoned() const {
  if (!poisoned_.empty())
    fail(ErrorKind::CommFailed, str_cat(name_, "[", size(), "] failed: ", poisoned_));
}

std::shared_ptr<Communicator> VirtualCommunicator::subgroup(std::span<const int> ranks,
                                                            std::string name) {
  std::vector<int> members;
  for (const int rank : ranks) {
    CS_REQUIRE(rank >= 0 && rank < size(), "subgroup ", name, ": rank ", rank,
               " is out of range for ", size(), " ranks");
    members.push_back(members_[static_cast<std::size_t>(rank)]);
  }
  const auto self = std::ranges::find(ranks, rank_);
  CS_REQUIRE(self != ranks.end(), "subgroup ", name, ": rank ", rank_, " is not listed");
  auto group = std::make_shared<VirtualCommunicator>(
      network_, std::move(members), static_cast<int>(self - ranks.begin()), std::move(name));
  group->observe(slot_);
  return group;
}

std::shared_ptr<WorkState> VirtualCommunicator::start(Collective collective) {
  const std::uint64_t number = issued_;
  if (!is_point_to_point(collective.kind)) {
    ++issued_;
    order_hash_ = mix(order_hash_, fingerprint(collective, size()));
  }
  const std::int64_t bytes = larger_bytes(collective, size(), rank_);
  const int parts = collective.kind == CollectiveKind::AllGather ? size() : 1;
  const std::int64_t now = device().compute_stream().now;
  const bool one_by_one = gathers_by_shards() || collective.by_shards;
  const bool by_rounds = parts > 2 && !gathers_by_shards() && collective.by_shards;
  LinkTime time = by_rounds ? link_time(model_, round_of(collective, size()), size(), rank_)
                            : link_time(model_, collective, size(), rank_);
  if (collective.control_only || collective.unobserved)
    time = {};  // library overhead, not part of the step
  Transfers transfers;
  for (int round = 0; round < (by_rounds ? parts - 1 : 1); ++round)
    transfers.push_back(link_->add(this, now, time, by_rounds || !one_by_one ? 1 : parts));
  const auto event = std::make_shared<VirtualEvent>(this, link_, transfers.back());
  auto work = std::make_shared<VirtualWork>(shared_from_this(), std::move(transfers), parts);
  for (const auto& kept : {collective.keep_send, collective.keep_recv})
    if (kept) kept->used_until(event);
  if (Observer* watching = observer(); watching != nullptr && !collective.unobserved) {
    CommEvent& told = work->event;
    told.id = ++network_->events;
    told.sequence = number;
    told.kind = collective.kind;
    told.dtype = collective.dtype;
    told.bytes = bytes;
    told.communicator = name_;
    told.label = collective.label;
    told.where = collective.where;
    told.link = model_.name;
    watching->issued(told, now);
  }
  return work;
}

}  // namespace coshard
