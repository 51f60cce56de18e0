#include <coshard/runtime/launch/stop_request.h>

#include <utility>

#include "runtime/coro/user_call.h"

namespace coshard {

// In host memory on any device, so that reading it needs no device wait. Kept alive by the
// collective until all ranks are done with it.
struct StopRequest::Byte {
  explicit Byte(bool stop) : value(stop ? 1 : 0) {}
  std::uint8_t value;
  Buffer memory{nullptr, &value, sizeof value, true};
};

StopRequest::StopRequest(std::shared_ptr<Communicator> control, std::stop_token stop)
    : control_(std::move(control)), stop_(std::move(stop)) {}

StopRequest::Question StopRequest::issue() {
  auto byte = std::make_shared<Byte>(stop_.stop_requested());
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.dtype = DType::Bool;
  c.reduce = Reduce::Max;
  c.extent = 1;
  c.send = c.recv = &byte->value;
  c.keep_send = c.keep_recv = std::shared_ptr<Buffer>(byte, &byte->memory);
  c.label = "stop_requested";
  Work work = control_->issue(std::move(c));
  return {std::move(byte), std::move(work)};
}

Task<bool> StopRequest::ask(CallSite site) {
  const UserCall user(site);
  if (control_ == nullptr) co_return false;
  Question mine = issue();
  Question before = std::exchange(last_, std::move(mine));
  if (before.byte == nullptr) co_return false;
  co_await before.work;
  co_return before.byte->value != 0;
}

}  // namespace coshard
