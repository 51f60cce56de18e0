// The lists of kernels and device preparations, filled by static initialisers of the objects linked
// with this one.
#include <utility>

#include "runtime/device/cuda/launch.h"

namespace coshard {
namespace {

constinit const KernelEntry* kernels_here = nullptr;  // written while the kernels are loaded
constinit const DevicePreparation* preparations_here = nullptr;

}  // namespace

KernelEntry::KernelEntry(const void* of) noexcept
    : function(of), next(std::exchange(kernels_here, this)) {}
const KernelEntry* first_kernel() noexcept { return kernels_here; }

DevicePreparation::DevicePreparation(void (*does)(CudaDevice&)) noexcept
    : prepare(does), next(std::exchange(preparations_here, this)) {}
const DevicePreparation* first_preparation() noexcept { return preparations_here; }

}  // namespace coshard
