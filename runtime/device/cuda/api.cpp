#include "runtime/device/cuda/api.h"

namespace coshard {
namespace {

const CudaApi* in_use = nullptr;  // null: libcudart; written before any device is made

}  // namespace

const CudaApi& cuda() { return in_use != nullptr ? *in_use : real_cuda(); }
void use_cuda(const CudaApi* table) { in_use = table; }

}  // namespace coshard
