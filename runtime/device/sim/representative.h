#pragma once
// Runs a program as one rank of a world of any size, on the device `sim` without data. The rank
// stands for all: with sizes as torch.chunk makes them, rank 0 has the largest shards, and ranks of
// equal shards, placement and links do the same at the same time. Stragglers are not modelled.
#include <memory>

#include <coshard/runtime/launch/world.h>
#include "runtime/device/sim/virtual_communicator.h"

namespace coshard {

// Rank 0 of `ranks` runs `program` on `device`, on a thread of its own. Throws what it throws;
// Error{Unsupported} too where the host reads data (VirtualDevice::Stub).
void run_representative(int ranks, std::shared_ptr<VirtualDevice> device, LinkOf link_of,
                        const Program& program);

}  // namespace coshard
