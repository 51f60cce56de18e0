#pragma once
// Tensor: a shared handle to storage, shape, strides and dtype, and, when it is a DTensor, to a
// mesh and a layout. Copying a Tensor copies the handle. Belongs to the thread of its rank. Views
// share storage. A tensor may be *in flight*: its data are the result of a collective that has been
// issued and not yet awaited; views of it stay in flight and the first operator that computes waits
// (architecture C1).
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dtensor/device_mesh.h"
#include "dtensor/layout.h"
#include "dtensor/shape.h"
#include "dtensor/spec.h"
#include "runtime/device/device.h"
#include "runtime/dtype.h"

namespace coshard {

struct GradMeta;
class Redistribution;

// The first of a list of placements, and the line on which it is passed: what follows a variadic
// list can have no default.
struct FirstPlacement {
  FirstPlacement(Placement wanted, CallSite passed_at = CallSite::current())  // NOLINT: implicit
      : placement(wanted), site(passed_at) {}
  Placement placement;
  CallSite site;
};

// Memory shared by views, and the collective that is still filling it (empty when none).
struct Storage {
  std::shared_ptr<Buffer> buffer;
  // What still fills it; may be empty on a rank that takes no part in it. `in_flight` is the
  // program's structure: set where a collective is issued, on all ranks, cleared where it is waited
  // for.
  Work pending;
  bool in_flight = false;
  // How often the memory has been written to since it was made, through any handle.
  std::uint32_t changes() const { return buffer->writes; }
};

class Tensor {
 public:
  Tensor() = default;  // undefined
  bool defined() const { return impl_ != nullptr; }

  // --- shape: of the logical tensor when distributed ---
  const Shape& shape() const { return impl_->spec ? impl_->spec->shape : impl_->local_shape; }
  int ndim() const { return static_cast<int>(shape().size()); }
  std::int64_t size(std::int64_t dim) const;  // dim may be negative
  std::int64_t numel() const { return coshard::numel(shape()); }
  DType dtype() const { return impl_->dtype; }
  const std::shared_ptr<Device>& device() const { return impl_->storage->buffer->device(); }

  // --- distribution ---
  bool is_distributed() const { return impl_->spec != nullptr; }
  const std::shared_ptr<const Spec>& spec() const { return impl_->spec; }
  const DeviceMesh& mesh() const;
  const Layout& layout() const;
  // Issues the collectives that bring this DTensor to `layout` and returns at once; see
  // redistribute.h.
  template <class... Placements>
  Redistribution redistribute(FirstPlacement first, Placements... rest) const;

  // --- this rank's part ---
  const Shape& local_shape() const { return impl_->local_shape; }  // [0] outside the mesh
  const Strides& strides() const { return impl_->strides; }
  std::int64_t local_numel() const { return coshard::numel(impl_->local_shape); }
  bool is_contiguous() const;
  void* data() const;  // first element; waits for a collective in flight
  template <class T>
  T* data_as() const {
    CS_REQUIRE(dtype_of<T> == dtype(), "data_as<", dtype_of<T>, "> of a tensor of ", dtype());
    return static_cast<T*>(data());
  }
  bool in_flight() const { return impl_->storage->in_flight; }
  // What it waited for is over; nothing when something else fills it by now.
  void arrived(const std::shared_ptr<WorkState>& awaited) const;
  // In place, until the data are there; counted for `who` (waits_in_place.h). A coroutine awaits
  // the redistribution instead.
  void wait(std::string_view who = "data") const;
  // Does not wait for a collective in flight.
  void* address() const {
    return static_cast<char*>(impl_->storage->buffer->data()) +
           impl_->offset * static_cast<std::int64_t>(size_of(impl_->dtype));
  }
  const std::shared_ptr<Storage>& storage() const { return impl_->storage; }
  std::int64_t storage_offset() const { return impl_->offset; }

  // --- gradients ---
  bool requires_grad() const;
  // Marks a leaf; Error{BadInput} for a tensor that an operator made, or for an integer dtype.
  Tensor& set_requires_grad(bool value);
  bool is_leaf() const;
  Tensor grad() const;  // undefined before the first backward; may be Partial on a DTensor
  void set_grad(Tensor gradient) const;
  Tensor detach() const;  // the same data, outside the tape
  // Of now, once requires_grad() has been asked.
  const std::shared_ptr<GradMeta>& grad_meta() const { return impl_->grad; }
  void set_grad_meta(std::shared_ptr<GradMeta> meta) const { impl_->grad = std::move(meta); }

  // --- memory that others see too (writes.h) ---
  // The memory was written to by hand: through data(), or by the owner of borrowed memory. In-place
  // operators, random fills and optimizers say so by themselves. Backward refuses what it saved of
  // it before.
  void mark_written() const;
  // The tensor of which view operators made this; undefined for none. detach(), to_local() and
  // from_local() give handles of the same memory that are no views.
  Tensor base() const;
  void set_base(const Tensor& viewed) const;
  void leave_base() const { impl_->base = nullptr; }
  // Whether its part in the gradient is that of what the memory holds now.
  bool is_current() const { return impl_->known == impl_->storage->buffer->taped_write; }
  void set_current() const { impl_->known = impl_->storage->buffer->taped_write; }
  // Why a write would be lost, or land twice; null: it would not. So are views of it.
  const char* unwritable() const { return impl_->unwritable; }
  void set_unwritable(const char* why) const { impl_->unwritable = why; }
  // Whether nobody else has a handle to the memory; a view of what is gone is none any more.
  bool owns_memory() const {
    if (impl_.use_count() != 1) return false;
    impl_->base = nullptr;
    return impl_->storage.use_count() == 1 &&
           (in_flight() || impl_->storage->buffer.use_count() == 1);
  }

  // Convenience for tests and examples: this rank's elements as doubles, row-major.
  std::vector<double> to_vector() const;
  // The only element. Error{BadInput} for more than one, and for Shard or Partial, which names the
  // placement. 0 on a rank outside the mesh.
  double item() const;

  // Identity of the handle's target: two handles of one tensor are the same.
  const void* id() const { return impl_.get(); }

  // --- making tensors (this rank's memory; no values set) ---
  static Tensor empty(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype);
  // A DTensor whose local part is new memory.
  static Tensor empty(const std::shared_ptr<Device>& device, std::shared_ptr<const Spec> spec,
                      DType dtype);
  // Values given row-major; count must be numel(shape).
  static Tensor from_values(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype,
                            std::span<const double> values);
  // Borrowed memory: the caller keeps it alive and unchanged for as long as any view of it is used.
  static Tensor borrow(const std::shared_ptr<Device>& device, void* data, const Shape& shape,
                       DType dtype);

  // From now on the memory is in flight until `work` is over.
  void set_in_flight(Work work) const {
    impl_->storage->pending = std::move(work);
    impl_->storage->in_flight = true;
  }

  // An alias is a handle to part of x's memory that does not
  // wait for the collective that fills the rest.
  static Tensor alias(const Tensor& x, const Shape& shape, const Strides& strides,
                      std::int64_t offset);

  // The same storage seen with another geometry and spec; no tape.
  Tensor view_as(const Shape& local_shape, const Strides& strides, std::int64_t offset,
                 std::shared_ptr<const Spec> spec) const;
  Tensor with_spec(
      std::shared_ptr<const Spec> spec) const;  // same local geometry; null: a plain tensor
  Tensor raw_local() const { return with_spec(nullptr); }  // this rank's part, outside the tape

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    std::shared_ptr<const Spec> spec;
    std::shared_ptr<GradMeta> grad;
    Shape local_shape;
    Strides strides;
    std::int64_t offset = 0;
    DType dtype = DType::F32;
    std::uint32_t known = 0;  // the taped write of the memory that `grad` knows of
    std::shared_ptr<Impl> base;
    const char* unwritable = nullptr;
  };
  std::shared_ptr<Impl> impl_;

 public:
  // A handle that does not keep the tensor.
  class Weak {
   public:
    explicit Weak(const Tensor& tensor) : impl_(tensor.impl_) {}
    Tensor lock() const {
      Tensor tensor;
      tensor.impl_ = impl_.lock();
      return tensor;
    }

   private:
    std::weak_ptr<Impl> impl_;
  };
};

// A DTensor is a Tensor with a mesh and a layout; the name says what a function means.
using DTensor = Tensor;

// A contiguous copy of this rank's elements; off the tape.
Tensor copy_of(const Tensor& tensor);

std::string describe(const Tensor& tensor);  // "f32[8,512] S(0) on tp=4", "f32[8,512]"
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);  // description, no values

}  // namespace coshard
