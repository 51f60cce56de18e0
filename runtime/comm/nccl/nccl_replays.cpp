#include "runtime/comm/nccl/nccl_replays.h"

#include <utility>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"

namespace coshard {

void NcclReplays::keep(const Collective& told) {
  if (is_point_to_point(told.kind)) return messages_.push_back(told);
  if (told_.empty())
    if (const auto communicator = communicator_.lock()) recording_ = ++communicator->recordings_;
  told_.push_back(told);
}

void NcclReplays::recorded(const std::shared_ptr<GraphExec>& exec) {
  if (const auto communicator = communicator_.lock()) communicator->handle_->keep(exec);
}

void NcclReplays::launches() {
  const auto communicator = communicator_.lock();
  CS_REQUIRE(communicator != nullptr, "captured step: a communicator it uses was destroyed");
  communicator->flush_all_messages();
  for (const Collective& told : messages_) last_ = communicator->announce(told);
  if (!told_.empty()) {
    launch_ = launch_of(std::make_shared<const std::vector<Collective>>(std::exchange(told_, {})),
                        communicator->size());
    launch_.inner =
        static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(launch_.inner), recording_));
  }
  if (launch_.launched != nullptr) {
    Collective launch = launch_;
    if (const CallSite here = Branch::current().place.site; here.known()) launch.where = here;
    last_ = communicator->announce(launch);
  }
  {
    const std::scoped_lock lock(communicator->mutex_);
    if (!communicator->failed_) return;
  }
  communicator->throw_failure();
  const std::scoped_lock lock(communicator->mutex_);
  last_->announced.state()->check(0);  // poisoned: throws
  fail(ErrorKind::CommFailed, communicator->failure_text(*last_, communicator->cause_));
}

// The last of them stands for all: it completes with the graph, for which the compute stream waits.
void NcclReplays::launched(const std::shared_ptr<Event>& end) {
  const auto communicator = communicator_.lock();
  {
    const std::scoped_lock lock(communicator->mutex_);
    last_->operation->done = end;
    last_->awaited_ns = now_ns();
  }
  communicator->replayed_ = end;
  communicator->track(std::exchange(last_, nullptr));
}

}  // namespace coshard
