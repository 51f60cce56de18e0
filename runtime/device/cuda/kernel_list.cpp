// The lists of kernels and device preparations, filled by static initialisers of the objects linked
// with this one.
#include <utility>

#include "runtime/device/cuda/launch.h"

namespace coshard {
namespace {

constinit const KernelEntry* first_kernel = nullptr;  // written while the kernels are loaded
constinit const DevicePreparation* first_preparation = nullptr;

}  // namespace

KernelEntry::KernelEntry(const void* of) noexcept
    : function(of), next(std::exchange(first_kernel, this)) {}
const KernelEntry* KernelEntry::first() noexcept { return first_kernel; }

DevicePreparation::DevicePreparation(void (*does)(CudaDevice&)) noexcept
    : prepare(does), next(std::exchange(first_preparation, this)) {}
const DevicePreparation* DevicePreparation::first() noexcept { return first_preparation; }

}  // namespace coshard
