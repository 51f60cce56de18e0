#include <coshard/dtensor/ops/dlpack.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/coro/wait_limit.h>
#include "dtensor/ops/recipe.h"
#include "dtensor/tensor/copied_view.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

constexpr DLPackVersion kVersion{1, 1};

// The consumer of exported memory, as a reader that is over when it has called the deleter.
class Consumer final : public WorkState {
 public:
  explicit Consumer(const Device& device) : timeout_ns_(device.timeout_ns()) {}
  Poll poll(Poller, int) override {
    const std::lock_guard lock(mutex_);
    return released_ ? Poll::Done : Poll::Pending;
  }
  void wait(int) override {
    std::unique_lock lock(mutex_);
    const auto released = [this] { return released_; };
    const std::int64_t limit = WaitLimit::here().value_or(timeout_ns_);
    if (limit == 0) return released_now_.wait(lock, released);
    if (!released_now_.wait_for(lock, std::chrono::nanoseconds(limit), released))
      fail(ErrorKind::Timeout, str_cat(describe(),
                                       " has not been released; drop what was made of it "
                                       "before the tensor is written to"));
  }
  void note(WorkEvent) override {}
  WorkInfo info(int) const override { return {.waits_for_peers = false, .any_thread = true}; }
  std::string describe() const override { return "memory that to_dlpack has given away"; }
  std::string failure() const override { return ""; }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    released_now_.notify_all();
  }

 private:
  std::int64_t timeout_ns_;
  std::mutex mutex_;
  std::condition_variable released_now_;
  bool released_ = false;
};

// What the consumer holds.
struct Exported {
  DLManagedTensorVersioned managed;
  std::shared_ptr<Buffer> buffer;
  std::shared_ptr<Consumer> consumer;
  std::vector<std::int64_t> shape, strides;

  static void end(DLManagedTensorVersioned* managed) {
    const std::unique_ptr<Exported> self(static_cast<Exported*>(managed->manager_ctx));
    self->consumer->release();
  }
};

DLDataType stored_type(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::F16:
    case DType::F32:
    case DType::F64: return {kDLFloat, bits, 1};
    case DType::BF16: return {kDLBfloat, bits, 1};
    case DType::I32:
    case DType::I64: return {kDLInt, bits, 1};
    case DType::Bool: return {kDLBool, bits, 1};
    case DType::F8E4M3: return {kDLFloat8_e4m3fn, bits, 1};
    case DType::F8E5M2: return {kDLFloat8_e5m2, bits, 1};
  }
  return {};
}

DType dtype_of_type(const DLDataType& type) {
  for (const DType dtype : {DType::F16, DType::F32, DType::F64, DType::BF16, DType::I32, DType::I64,
                            DType::Bool, DType::F8E4M3, DType::F8E5M2}) {
    const DLDataType known = stored_type(dtype);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return dtype;
  }
  fail(ErrorKind::BadInput,
       str_cat(
           "from_dlpack: code ", int{type.code}, " with ", int{type.bits}, " bits and ", type.lanes,
           " lanes is none of f16, f32, f64, bf16, i32, i64, bool, f8e4m3 and f8e5m2; convert it"));
}

// The N of "cuda:N".
std::int32_t number_of(const Device& device) {
  const std::string name = device.name();
  const std::size_t colon = name.find(':');
  return colon == std::string::npos ? 0 : std::stoi(name.substr(colon + 1));
}

DLDevice place_of(const Device& device) {
  if (device.kind() == DeviceKind::Cpu) return {kDLCPU, 0};
  CS_REQUIRE(device.kind() == DeviceKind::Cuda, "to_dlpack: ", device.name(),
             " is no device of DLPack; cpu and cuda are");
  return {kDLCUDA, number_of(device)};
}

void require_here(const DLDevice& place, const Device& device) {
  const bool cpu = device.kind() == DeviceKind::Cpu;
  const bool fits = cpu ? place.device_type == kDLCPU || place.device_type == kDLCUDAHost
                        : device.kind() == DeviceKind::Cuda && place.device_type == kDLCUDA &&
                              place.device_id == number_of(device);
  CS_REQUIRE(fits, "from_dlpack: memory on DLPack's device (", static_cast<int>(place.device_type),
             ", ", place.device_id, "), but this rank computes on ", device.name(),
             "; copy it there first");
}

struct Geometry {
  Shape shape;
  Strides strides;
  std::int64_t elements;  // from the first to the last, both included
};

Geometry geometry_of(const DLTensor& given) {
  constexpr int kMost = 64;
  CS_REQUIRE(given.ndim >= 0 && given.ndim <= kMost && (given.ndim == 0 || given.shape != nullptr),
             "from_dlpack: ", given.ndim, " dimensions are not 0 to ", kMost, ", or have no shape");
  Geometry made{
      .shape = Shape(given.shape, given.shape + given.ndim), .strides = {}, .elements = 1};
  require_size(made.shape, sizeof(double), "from_dlpack");
  made.strides = row_major(made.shape);
  for (int d = 0; d < given.ndim && given.strides != nullptr; ++d)
    made.strides[static_cast<std::size_t>(d)] = given.strides[d];
  const bool empty = numel(made.shape) == 0;
  if (empty) made.strides = row_major(made.shape);
  for (std::size_t d = 0; d < made.shape.size(); ++d) {
    CS_REQUIRE(made.strides[d] >= 0, "from_dlpack: the strides ", made.strides,
               " have a negative one; make a contiguous copy");
    std::int64_t reach = 0;
    const bool fits = !__builtin_mul_overflow(made.shape[d] - 1, made.strides[d], &reach) &&
                      !__builtin_add_overflow(made.elements, reach, &made.elements);
    CS_REQUIRE(empty || fits, "from_dlpack: the strides ", made.strides,
               " reach beyond all memory");
  }
  if (empty) made.elements = 0;
  return made;
}

// The producer's memory, which it gets back with the last handle.
struct Imported {
  DLManagedTensorVersioned* managed;
  std::shared_ptr<Buffer> buffer;
  Imported(DLManagedTensorVersioned* given, std::shared_ptr<Buffer> memory)
      : managed(given), buffer(std::move(memory)) {}
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;
  ~Imported() {
    buffer = nullptr;
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& x, ToDlpackOptions options, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(x.defined() && !x.is_distributed(), "to_dlpack: ", x,
             " is no plain tensor; to_local() gives the local one");
  CS_REQUIRE(!x.requires_grad(), "to_dlpack: ", x,
             " requires a gradient, which others would not know of; give its detach()");
  require_values(x);
  Device& device = *x.device();
  auto made = std::make_unique<Exported>();
  made->managed = {.version = kVersion,
                   .manager_ctx = made.get(),
                   .deleter = Exported::end,
                   .flags = options.read_only || x.unwritable() != nullptr
                                ? std::uint64_t{DLPACK_FLAG_BITMASK_READ_ONLY}
                                : 0,
                   .dl_tensor = {}};
  made->shape.assign(x.local_shape().begin(), x.local_shape().end());
  made->strides.assign(x.strides().begin(), x.strides().end());
  DLTensor& told = made->managed.dl_tensor;
  told.data = const_cast<void*>(x.const_data());  // in flight: awaited
  told.device = place_of(device);
  told.ndim = static_cast<std::int32_t>(made->shape.size());
  told.dtype = stored_type(x.dtype());
  told.shape = made->shape.data();
  told.strides = made->strides.data();
  if (device.queues() && options.stream != device.compute_stream().native()) device.synchronize();
  made->buffer = x.storage()->buffer;
  made->consumer = std::make_shared<Consumer>(device);
  x.read_by(Work(made->consumer));
  return &made.release()->managed;
}

Tensor from_dlpack(World& world, DLManagedTensorVersioned* given, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(given != nullptr, "from_dlpack: there is no tensor");
  CS_REQUIRE(given->version.major == kVersion.major, "from_dlpack: version ", given->version.major,
             ".", given->version.minor, " of DLPack is not 1; ask for max_version (1, 1)");
  const DLTensor& told = given->dl_tensor;
  require_here(told.device, *world.device());
  const DType dtype = dtype_of_type(told.dtype);
  const Geometry geometry = geometry_of(told);
  CS_REQUIRE(geometry.elements == 0 || told.data != nullptr, "from_dlpack: data is null for ",
             geometry.shape);
  char* const data =
      geometry.elements == 0 ? nullptr : static_cast<char*>(told.data) + told.byte_offset;
  CS_REQUIRE(reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0,
             "from_dlpack: the data begin at no multiple of ", size_of(dtype),
             " bytes; make a copy");
  const Tensor flat = Tensor::borrow(world.device(), data, Shape{geometry.elements}, dtype);
  const auto owner = std::make_shared<Imported>(given, flat.storage()->buffer);
  flat.storage()->buffer = std::shared_ptr<Buffer>(owner, owner->buffer.get());
  const Tensor made = flat.view_as(geometry.shape, geometry.strides, 0, nullptr);
  if ((given->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0) made.set_unwritable(kReadOnly);
  return made;
}

}  // namespace coshard
