#pragma once
// Runs a program as one rank of a world of any size, on the device `sim` without data. The rank
// stands for all: with sizes as torch.chunk makes them, rank 0 has the largest shards, and ranks of
// equal shards, placement and links do the same at the same time. Stragglers are not modelled.
#include <memory>

#include <coshard/runtime/launch/world.h>
#include "runtime/device/sim/virtual_communicator.h"

namespace coshard {

// Runs `program` as rank 0 of `ranks` on `device`, on a separate thread. Throws what the program
// throws; also Error{Unsupported} where the host reads data without a VirtualDevice::Stub.
// `gathers_by_shards`: of its communicators.
void run_representative(int ranks, std::shared_ptr<VirtualDevice> device, LinkOf link_of,
                        const Program& program, bool gathers_by_shards = true);

}  // namespace coshard
