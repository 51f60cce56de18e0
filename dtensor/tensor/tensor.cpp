#include <coshard/dtensor/tensor/tensor.h>

#include <coshard/dtensor/tensor/promotion.h>
#include <coshard/dtensor/tensor/waits_in_place.h>
#include "dtensor/mesh/marks.h"
#include "dtensor/tensor/copied_view.h"
#include "kernels/run.h"
#include "runtime/comm/neighbours.h"
#include "runtime/coro/frame_allocator.h"
#include "runtime/device/graph.h"

namespace coshard {
namespace {

std::size_t bytes_of(const Shape& shape, DType dtype, const char* what) {
  require_size(shape, size_of(dtype), what);
  return static_cast<std::size_t>(numel(shape)) * size_of(dtype);
}

}  // namespace

void Tensor::fail_undefined() {
  fail(ErrorKind::BadInput,
       "the tensor is undefined: nothing was assigned to it (a gradient is undefined until "
       "backward sets it)");
}

std::int64_t Tensor::size(std::int64_t dim) const {
  return shape()[static_cast<std::size_t>(normalize_dim(dim, ndim(), "size"))];
}

const DeviceMesh& Tensor::mesh() const {
  CS_REQUIRE(is_distributed(), "mesh: ", *this, " is a plain tensor");
  return impl().spec->mesh;
}

const Layout& Tensor::layout() const {
  CS_REQUIRE(is_distributed(), "layout: ", *this, " is a plain tensor");
  return impl().spec->layout;
}

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t i = impl().local_shape.size(); i-- > 0;) {
    const std::int64_t size = impl().local_shape[i];
    if (size == 0) return true;
    if (size != 1 && impl().strides[i] != expected) return false;
    expected *= size;
  }
  return true;
}

void Tensor::wait_in_place(WorkState& work, std::string_view who, std::string_view why) {
  work.note(WorkEvent::Needed);
  if (work.info().waits_for_peers) count_wait_in_place(who);
  try {
    work.wait();
  } catch (const MissingIsHere& error) {
    fail(error.kind(),
         str_cat(who, ": ", why, error.reason(), "; co_await the redistribution first"));
  }
}

void Tensor::wait(std::string_view who) const {
  Storage& storage = *impl().storage;
  if (!storage.in_flight) return;
  const std::shared_ptr<WorkState> state = storage.pending.state();
  if (state != nullptr) wait_in_place(*state, who, "its input is in flight and ");
  arrived(state);
}

void Tensor::arrived(const std::shared_ptr<WorkState>& awaited) const {
  Storage& storage = *impl().storage;
  if (storage.pending.state() != awaited) return;
  storage.in_flight = false;
  storage.pending = Work();
  storage.gathered = nullptr;
}

const void* Tensor::const_data() const {
  wait();
  require_up_to_date(*this);
  return address();
}

void* Tensor::data() const {
  CS_REQUIRE(unwritable() != kCopiedView && unwritable() != kUnsureView, "data: ", *this,
             " shares memory with a copy that a view operator made, and what is written there does "
             "not reach what that is a view of; read const_data(), or change the view by operators "
             "or a clone() by data()");
  CS_REQUIRE(unwritable() != kReadOnly, "data: ", *this, " ", kReadOnly, ", or read const_data()");
  wait();
  if (!impl_->storage->buffer->reader.expired() || !impl_->storage->buffer->more_readers.empty())
    wait_for_readers("data");
  return address();
}

const char* const kCopyOfView =
    "is a copy that a view operator made; change what it is a view of, or a clone() of it";

const char* const kCopiedView =
    "shares memory with a copy that a view operator made; change the view, what it is a view of, "
    "or a clone() of this";

const char* const kUnsureView =
    "is a copy of a tensor whose strides from_local was not told, so that it may share memory on "
    "one device; give from_local `stride`, or change a clone() of this";

const char* const kReadOnly =
    "is memory that another library has given for reading; change a clone() of it";

Tensor Tensor::base() const {
  Tensor base;
  base.impl_ = impl().base;
  return base;
}

bool Tensor::fits_as_gradient(const Tensor& gradient) const {
  if (gradient.shape() != shape() || gradient.dtype() != dtype()) return false;
  if (!is_distributed() || !gradient.is_distributed())
    return is_distributed() == gradient.is_distributed();
  return gradient.mesh() == mesh();
}

Tensor Tensor::with_spec(std::shared_ptr<const Spec> spec) const& {
  Tensor out = view_as(impl().local_shape, impl().strides, impl().offset, std::move(spec));
  if (out.impl_->spec) out.impl_->logical = impl().logical;
  return out;
}

Tensor Tensor::with_spec(std::shared_ptr<const Spec> spec) && {
  if (impl_.use_count() != 1 || impl_->grad || impl_->base || impl_->copied_view)
    return std::as_const(*this).with_spec(std::move(spec));
  impl_->spec = std::move(spec);
  if (impl_->spec && impl_->marks != 0) impl_->marks = marks_outside(impl_->marks, *impl_->spec);
  impl_->known = impl_->storage->buffer->taped_write;
  return std::move(*this);
}

Tensor Tensor::view_as(const Shape& local_shape, const Strides& strides, std::int64_t offset,
                       std::shared_ptr<const Spec> spec) const {
  Tensor out;
  out.impl_ = std::allocate_shared<Impl>(FrameAllocator<Impl>());
  out.impl_->storage = impl().storage;
  out.impl_->spec = std::move(spec);
  out.impl_->local_shape = local_shape;
  out.impl_->strides = strides;
  out.impl_->offset = offset;
  out.impl_->dtype = impl().dtype;
  out.impl_->known = impl().storage->buffer->taped_write;
  out.impl_->unwritable = impl().unwritable;
  out.impl_->origin = impl().origin;
  out.impl_->marks = marks();
  if (out.impl_->spec && out.impl_->marks != 0)
    out.impl_->marks = marks_outside(out.impl_->marks, *out.impl_->spec);
  return out;
}

Tensor Tensor::empty(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype) {
  const std::size_t bytes = bytes_of(shape, dtype, "empty");
  Tensor out;
  out.impl_ = std::allocate_shared<Impl>(FrameAllocator<Impl>());
  out.impl_->storage = std::allocate_shared<Storage>(FrameAllocator<Storage>());
  out.impl_->storage->buffer = device->make_buffer(bytes);
  out.impl_->local_shape = shape;
  out.impl_->strides = row_major(shape);
  out.impl_->dtype = dtype;
  return out;
}

Tensor Tensor::empty(const std::shared_ptr<Device>& device, std::shared_ptr<const Spec> spec,
                     DType dtype) {
  Tensor out = empty(device, spec->local_shape, dtype);
  out.impl_->spec = std::move(spec);
  return out;
}

Tensor Tensor::borrow(const std::shared_ptr<Device>& device, void* data, const Shape& shape,
                      DType dtype) {
  Tensor out;
  const std::size_t bytes = bytes_of(shape, dtype, "borrow");
  CS_REQUIRE(data != nullptr || bytes == 0, "borrow: data is null for ", shape);
  out.impl_ = std::make_shared<Impl>();
  out.impl_->storage = std::make_shared<Storage>();
  out.impl_->storage->buffer = device->borrow(data, bytes);
  out.impl_->local_shape = shape;
  out.impl_->strides = row_major(shape);
  out.impl_->dtype = dtype;
  return out;
}

namespace {

kernels::View view_of(const void* data, const Tensor& tensor, DType dtype, const Strides& strides) {
  kernels::View view;
  view.data = const_cast<void*>(data);  // a view is of what is read or written
  view.dtype = dtype;
  view.ndim = static_cast<int>(tensor.local_shape().size());
  for (std::size_t i = 0; i < strides.size(); ++i) {
    view.shape[i] = tensor.local_shape()[i];
    view.strides[i] = strides[i];
  }
  return view;
}

}  // namespace

Tensor Tensor::from_values(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype,
                           const ValueList& list) {
  const std::span<const double> values = list;
  Tensor out = empty(device, shape, dtype);
  CS_REQUIRE(static_cast<std::int64_t>(values.size()) == out.numel(),
             "from_values: ", values.size(), " values for shape ", shape);
  if (!is_floating(dtype) && !is_float8(dtype))
    for (const double value : values) require_fits(value, dtype, "from_values");
  require_not_recording(*device, "from_values", "copy from the host");
  // Kernels of other devices than the CPU cannot read host memory.
  void* given = const_cast<double*>(values.data());
  const Tensor there =
      device->kind() == DeviceKind::Cpu ? Tensor() : empty(device, shape, DType::F64);
  if (there.defined()) {
    device->upload(there.address(), given, values.size_bytes());
    given = there.address();
  }
  kernels::run(*device, kernels::Copy{view_of(out.address(), out, dtype, out.strides()),
                                      view_of(given, out, DType::F64, out.strides())});
  return out;
}

std::vector<double> Tensor::to_vector() const {
  CS_REQUIRE(!is_distributed() || !layout().has_partial(), "to_vector: ", *this,
             " is Partial; redistribute it to ", partial_as_replicate(layout()),
             " first, or read to_local()");
  require_not_recording(*device(), "to_vector", "copy to the host");
  std::vector<double> values(static_cast<std::size_t>(local_numel()));
  const Tensor there =
      device()->kind() == DeviceKind::Cpu ? Tensor() : empty(device(), local_shape(), DType::F64);
  void* to = there.defined() ? there.address() : values.data();
  kernels::run(*device(), kernels::Copy{view_of(to, *this, DType::F64, row_major(local_shape())),
                                        view_of(const_data(), *this, dtype(), strides())});
  if (there.defined()) device()->download(values.data(), to, values.size() * sizeof(double));
  return values;
}

Tensor Tensor::alias(const Tensor& x, const Shape& shape, const Strides& strides,
                     std::int64_t offset) {
  Tensor out = x.view_as(shape, strides, offset, nullptr);
  out.impl_->storage = std::make_shared<Storage>();
  out.impl_->storage->buffer = x.impl_->storage->buffer;
  return out;
}

Tensor copy_of(const Tensor& tensor) {
  Tensor out = Tensor::empty(tensor.device(), tensor.local_shape(), tensor.dtype());
  kernels::run(
      *tensor.device(),
      kernels::Copy{view_of(out.address(), out, out.dtype(), out.strides()),
                    view_of(tensor.const_data(), tensor, tensor.dtype(), tensor.strides())});
  out.set_marks(tensor.marks());
  return tensor.is_distributed() ? std::move(out).with_spec(tensor.spec()) : out;
}

double Tensor::item() const {
  CS_REQUIRE(numel() == 1, "item: ", *this, " has ", numel(), " elements");
  if (is_distributed()) {
    for (const Placement& p : layout())
      CS_REQUIRE(p.is_replicate(), "item: ", *this, " is ", p,
                 " along a mesh dimension; redistribute it to ",
                 Layout::filled(layout().ndim(), Replicate()), " first");
    if (!mesh().contains_this_rank()) return 0;
  }
  require_not_recording(*device(), "item", "copy to the host");
  return to_vector().front();
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  if (!tensor.is_distributed()) return str_cat(tensor.dtype(), tensor.shape());
  return str_cat(tensor.dtype(), describe(*tensor.spec()));
}

}  // namespace coshard
