#pragma once
// DLPack 1.1 (https://dmlc.github.io/dlpack): tensors exchanged with PyTorch, NumPy and others
// without a copy. Rank's thread, but for the deleter of what is exported.
//
//   DLManagedTensorVersioned* given = cs::to_dlpack(x);  // into a capsule "dltensor_versioned"
//   cs::Tensor y = cs::from_dlpack(world, taken);        // from one, then "used_dltensor_versioned"
#include <cstdint>
#include <optional>

#include <coshard/dtensor/tensor/tensor.h>
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)

// The binary interface, in the names of dlpack.h; include that first to use its own.
#ifndef DLPACK_DLPACK_H_
extern "C" {
struct DLPackVersion {
  std::uint32_t major, minor;
};
enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};
enum DLDataTypeCode {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e5m2 = 12
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // of elements; null: row-major
  std::uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};
}
#define DLPACK_FLAG_BITMASK_READ_ONLY (1UL << 0UL)
#endif

namespace coshard {

// What __dlpack__ is told.
struct ToDlpackOptions {
  // The cudaStream_t on which the consumer works, of a CUDA tensor; nothing: any. Unless it is the
  // device's own compute stream, the host waits until that has computed x.
  std::optional<const void*> stream = std::nullopt;
  bool read_only = false;  // flagged so; what may not be changed in place always is
};

// The memory of a plain tensor. Waits for what fills it; keeps it until the consumer calls the
// deleter, on any thread. Until then writes of this rank to the memory (operators in place, an
// optimizer's step, data()) wait for that as for any reader, until the rank's timeout; what the
// consumer writes is seen by later operators, after mark_written().
//   Fails:  Error{BadInput}: a DTensor (to_local() gives its local part); one that requires a
//           gradient (detach()); one without values yet.
DLManagedTensorVersioned* to_dlpack(const Tensor& x, ToDlpackOptions options = {},
                                    CallSite site = CallSite::current());

// A plain tensor of the producer's memory, off the tape, which calls the deleter when its last handle
// is gone. On CUDA the producer has been told the device's compute stream. If `given` is flagged as
// read-only, operators in place and data() refuse the tensor.
//   Fails:  Error{BadInput}, and `given` stays the caller's: another major version; a type that is no
//           DType; another device than the rank's; strides that are negative, or leave elements off
//           their alignment; null data.
Tensor from_dlpack(World& world, DLManagedTensorVersioned* given,
                   CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
