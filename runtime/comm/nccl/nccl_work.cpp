#include <coshard/runtime/error.h>
#include "runtime/comm/nccl/nccl_communicator.h"

namespace coshard {

bool NcclWork::ready() { return communicator_->part_there(*flight_, -1); }

void NcclWork::wait() { communicator_->wait(*flight_); }

int NcclWork::parts() const {
  return flight_->kind == CollectiveKind::AllGather ? communicator_->size() : 1;
}

void NcclWork::check_part(int part) const {
  CS_REQUIRE(part >= 0 && part < parts(), to_string(flight_->kind), ": part ", part,
             " is not one of ", parts());
}

bool NcclWork::part_ready(int part) {
  check_part(part);
  return communicator_->part_there(*flight_, part);
}

void NcclWork::wait_part(int part) {
  check_part(part);
  communicator_->wait_part(*flight_, part);
}

std::string_view nccl_path(const Work& work) {
  const auto* state = dynamic_cast<const NcclWork*>(work.state().get());
  return state == nullptr ? std::string_view() : state->path();
}

}  // namespace coshard
