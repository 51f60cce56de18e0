#include "runtime/device/cuda/name_stream.h"

#include "runtime/device/has_nvtx.h"

#if COSHARD_HAS_NVTX
#include <nvtx3/nvToolsExtCudaRt.h>
#endif

namespace coshard {

void name_stream([[maybe_unused]] cudaStream_t stream, [[maybe_unused]] const std::string& name) {
#if COSHARD_HAS_NVTX
  nvtxNameCudaStreamA(stream, name.c_str());
#endif
}

}  // namespace coshard
