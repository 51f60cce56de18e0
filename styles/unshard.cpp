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
