#include <coshard/runtime/comm/communicator.h>

#include <algorithm>
#include <utility>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

// A buffer of 0 bytes uses no memory.
bool is_callers(const void* data, const std::shared_ptr<Buffer>& keeper) {
  if (data == nullptr) return false;
  return keeper == nullptr || (!keeper->owned() && keeper->bytes() > 0);
}

void put_down_to(Collective& collective, const CallLocation& place, CallSite where) {
  if (!collective.where.known()) collective.where = where.known() ? where : place.site;
  collective.operation = place.operation;
  collective.module = place.module;
}

}  // namespace

void Notes::add(const Noted& done) {
  if (Branch::current().unordered) return;
  sum += mix(mix(mix(done.what.size(), done.of_what.size()), done.value), done.of);
  last = done;
}

void Communicator::note(const Notes& before) {
  notes_.sum += before.sum;
  if (!before.last.what.empty()) notes_.last = before.last;
}

void Communicator::compare_with_next(const ReplicaHashes& hashes) {
  if (next_hashes_ == nullptr) next_hashes_ = std::make_shared<ReplicaHashes>();
  ReplicaHashes& all = *next_hashes_;
  for (std::size_t i = 0; i < hashes.names.size(); ++i) {
    const auto at =
        static_cast<std::size_t>(std::ranges::find(all.of, hashes.of[i]) - all.of.begin());
    if (at == all.of.size()) {
      all.of.push_back(hashes.of[i]);
      all.names.emplace_back();
      all.hashes.push_back(0);
      all.gradients.push_back(0);
      all.about.emplace_back();
    }
    all.names[at] = hashes.names[i];
    all.hashes[at] = hashes.hashes[i];
    all.gradients[at] = hashes.gradients[i];
    all.about[at] = hashes.about[i];
  }
}

Work Communicator::issue(Collective collective, CallSite where) {
  Branch& branch = Branch::current();
  branch.throw_if_cancelled();
  put_down_to(collective, branch.place, where);
  check(collective, size(), rank());
  CS_REQUIRE(!branch.unordered || is_point_to_point(collective.kind), to_string(collective.kind),
             " in branch ", branch.path(),
             ", which was resumed in completion order (as_it_comes, in_order) and may issue no "
             "collectives: ranks could issue them in different orders",
             location_text(collective));
  collective.noted += notes_.sum;  // nonzero for one announced for another communicator
  if (!notes_.last.what.empty()) collective.last_noted = notes_.last;
  if (next_hashes_ != nullptr && collective.replicas == nullptr &&
      !is_point_to_point(collective.kind)) [[unlikely]]
    collective.replicas = std::exchange(next_hashes_, nullptr);
  collective.branch = branch.id();
  collective.branch_path = branch.child_path();
  const bool callers =
      !collective.control_only && (is_callers(collective.send, collective.keep_send) ||
                                   is_callers(collective.recv, collective.keep_recv));
  return Work(start(std::move(collective)), !callers);
}

}  // namespace coshard
