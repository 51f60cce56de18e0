#pragma once
// Names a stream for Nsight Systems. Does nothing if no tool is attached, or in a build without
// NVTX. Any thread.
#include <cuda_runtime_api.h>

#include <string>

namespace coshard {

void name_stream(cudaStream_t stream, const std::string& name);

}  // namespace coshard
