#pragma once
// What a program brings along and what it is told: devices with streams and allocators of its own
// (CudaOptions, make_cuda_device, which a build with CUDA has), and Observer, the interface through
// which a rank is watched (World::add_observer).
#include <coshard/runtime/language.h>

#include <coshard/runtime/device/cuda/cuda_options.h>
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/observer.h>
