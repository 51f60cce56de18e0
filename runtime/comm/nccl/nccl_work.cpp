#include <coshard/runtime/error.h>
#include "runtime/comm/nccl/nccl_communicator.h"

namespace coshard {

Poll NcclWork::poll(Poller by, int part) {
  if (by == Poller::AnyThread) return Poll::Pending;
  if (by != Poller::Query) return Poll::Done;
  check_part(part);
  return communicator_->part_there(*flight_, part) ? Poll::Done : Poll::Pending;
}

void NcclWork::wait(int part) {
  check_part(part);
  part < 0 ? communicator_->wait(*flight_) : communicator_->wait_part(*flight_, part);
}

int NcclWork::parts() const {
  return flight_->kind == CollectiveKind::AllGather ? communicator_->size() : 1;
}

void NcclWork::check_part(int part) const {
  CS_REQUIRE(part >= kAll && part < parts(), to_string(flight_->kind), ": part ", part,
             " is out of range for ", parts(), " parts");
}

std::string_view nccl_path(const Work& work) {
  const auto* state = dynamic_cast<const NcclWork*>(work.state().get());
  return state == nullptr ? std::string_view() : state->path();
}

}  // namespace coshard
