#pragma once
// Extension points of the runtime: devices on the caller's streams and allocators (CudaOptions,
// make_cuda_device; in builds with CUDA), and Observer, the interface through which a rank is
// observed (World::add_observer).
#include <coshard/runtime/language.h>

#include <coshard/runtime/device/cuda/cuda_options.h>
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/observer.h>
