#pragma once
// Collectives between ranks of one process on CUDA devices: copies by the copy engines, reductions
// by a kernel, flags by stream memory operations. See runtime/device/peer_engine.h.
#include <memory>

#include "runtime/device/peer_engine.h"

namespace coshard {

class CudaDevice;

std::unique_ptr<PeerEngine> make_peer_engine(CudaDevice& device);

}  // namespace coshard
