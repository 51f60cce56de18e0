#pragma once
// What a rank issues on the communicator of its world, over one number that stays the caller's.
#include <utility>

#include <coshard/runtime/launch/world.h>

namespace coshard::testing {

inline Work issue_sum(World& world, float& value, CallSite where = CallSite::current()) {
  Collective c;
  c.where = where;
  c.kind = CollectiveKind::AllReduce;
  c.extent = 1;
  c.send = c.recv = &value;
  return world.communicator()->issue(std::move(c));
}

// `kind`: Send or Recv.
inline Work issue_message(World& world, CollectiveKind kind, int peer, float& value,
                          CallSite where = CallSite::current()) {
  Collective c;
  c.where = where;
  c.kind = kind;
  c.root = peer;
  c.extent = 1;
  if (kind == CollectiveKind::Send)
    c.send = &value;
  else
    c.recv = &value;
  return world.communicator()->issue(std::move(c));
}

}  // namespace coshard::testing
