// Groups of sharded parameters that are gathered and freed by hand.
#include <coshard/dtensor/redistribute/redistribute.h>

#include "runtime/coro/user_call.h"
#include "styles/shard_group.h"

namespace coshard {
namespace {

ShardGroup& group_of(Module& module, std::string_view who) {
  const std::shared_ptr<ShardGroup> group = shard_group_of(module);
  CS_REQUIRE(group && &group->module() == &module, who, ": ", module.type_name(), " '",
             module.path(), "' is not a module that fully_shard was called with");
  return *group;
}

}  // namespace

void ShardGroup::unshard(std::vector<Tensor>& arriving) {
  require_own_slots();
  refresh();
  gather();
  if (!std::exchange(by_hand_, true) && uses_++ == 0) put_in_slots(true);
  if (memory_.defined() && memory_.in_flight()) arriving.push_back(memory_);
}

void ShardGroup::reshard() {
  if (!std::exchange(by_hand_, false) || --uses_ > 0) return;
  put_in_slots(false);
  if (backwards_ == 0) release();
}

// A shard that was written to is not what is gathered.
void ShardGroup::require_not_stale() const {
  if (!by_hand_) return;
  for (std::size_t i = 0; i < gathered_at_.size(); ++i)
    CS_REQUIRE(parameters_[i].shard.storage()->changes() == gathered_at_[i], "fully_shard: '",
               parameters_[i].name, "' of ", module_.type_name(), " '", module_.path(),
               "' was written to since unshard; call reshard first");
}

Task<void> unshard(Module& module, CallSite site) {
  const UserCall user(site);
  std::vector<Tensor> arriving;
  group_of(module, "unshard").unshard(arriving);
  Task<void> arrived = arrival_of(std::move(arriving));
  co_await std::move(arrived);
}

void reshard(Module& module, CallSite site) {
  const UserCall user(site);
  group_of(module, "reshard").reshard();
}

}  // namespace coshard
