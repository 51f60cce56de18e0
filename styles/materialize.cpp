#include <coshard/dtensor/distribute/deferred_init.h>
#include <coshard/styles/materialize.h>

#include "runtime/coro/user_call.h"

namespace coshard {

void materialize(Module& module, CallSite site) {
  const UserCall user(site);
  for (const NamedParameter& p : module.named_slots()) materialize(*p.slot, CallSite());
  for (const NamedBuffer& b : module.named_buffers()) materialize(*b.slot, CallSite());
}

}  // namespace coshard
