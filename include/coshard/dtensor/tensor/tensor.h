#pragma once
// Tensor: a shared handle to storage, shape, strides and dtype and, for a DTensor, to a mesh and a
// layout. Copying a Tensor copies the handle; views share storage. Used on its rank's thread. A
// tensor may be *in flight*: its data are the result of a collective that has been issued but not
// yet awaited. Views of it stay in flight; the first operator that computes waits.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/dtensor/mesh/layout.h>
#include <coshard/dtensor/mesh/shape.h>
#include <coshard/dtensor/mesh/spec.h>
#include <coshard/dtensor/tensor/dims.h>
#include <coshard/dtensor/tensor/scalar.h>
#include <coshard/runtime/device/device.h>
#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {

struct CopiedView;
struct GradMeta;
struct ValuesAndIndices;
class Redistribution;
template <class T>
class Task;

// The first placement of a variadic list, with its call site: no default argument can follow a
// parameter pack.
struct FirstPlacement {
  FirstPlacement(Placement wanted, CallSite passed_at = CallSite::current())  // NOLINT: implicit
      : placement(wanted), site(passed_at) {}
  Placement placement;
  CallSite site;
};

// An index, with its call site: an operator cannot have default arguments.
struct IndexAt {
  IndexAt(std::int64_t wanted, CallSite stands_at = CallSite::current())  // NOLINT: implicit
      : index(wanted), site(stands_at) {}
  std::int64_t index;
  CallSite site;
};

// An all_gather that fills a tensor on a 1-D mesh shard by shard along `dim`.
struct Gathered {
  std::shared_ptr<const Spec> spec;  // of the result
  int dim = 0;
  DType dtype = DType::F32;
  bool asked = false;  // for shards (RedistributeOptions::by_shards): the choice is made
  std::vector<std::shared_ptr<const Spec>> weights = {};  // of layers that multiply it together
};

// Memory shared by views, and the collective that is still filling it, if any.
struct Storage {
  std::shared_ptr<Buffer> buffer;
  // What still fills it; may be empty on a rank that takes no part. `in_flight` depends on the
  // program's structure alone: set on all ranks where a collective is issued, cleared where it is
  // waited for.
  Work pending;
  bool in_flight = false;
  std::shared_ptr<const Gathered> gathered;  // while in flight; null: not shard by shard
  // How often the memory has been written to, through any handle.
  std::uint32_t changes() const { return buffer->writes; }
};

// On an undefined tensor everything but defined() and printing is Error{BadInput}.
class Tensor {
 public:
  Tensor() = default;  // undefined
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // Only for lvalues: `x[0] = y` would write nothing. Use copy_(x[0], y).
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  ~Tensor() = default;
  bool defined() const { return impl_ != nullptr; }

  // --- shape ---
  // For a DTensor, the logical shape.
  const Shape& shape() const { return impl().spec ? impl().spec->shape : impl().local_shape; }
  int ndim() const { return static_cast<int>(shape().size()); }
  std::int64_t size(std::int64_t dim) const;  // dim may be negative
  std::int64_t numel() const { return coshard::numel(shape()); }
  DType dtype() const { return impl().dtype; }
  const std::shared_ptr<Device>& device() const { return impl().storage->buffer->device(); }

  // --- distribution ---
  bool is_distributed() const { return impl().spec != nullptr; }
  const std::shared_ptr<const Spec>& spec() const { return impl().spec; }
  const DeviceMesh& mesh() const;
  const Layout& layout() const;
  // Issues the collectives that bring it to `layout`, and returns at once; see redistribute.h.
  template <class... Placements>
  Redistribution redistribute(FirstPlacement first, Placements... rest) const;
  Redistribution redistribute(const Layout& layout, CallSite site = CallSite::current()) const;

  // --- the local tensor ---
  const Shape& local_shape() const { return impl().local_shape; }  // [0] outside the mesh
  const Strides& strides() const { return impl().strides; }
  std::int64_t local_numel() const { return coshard::numel(impl().local_shape); }
  bool is_contiguous() const;
  // The first element. Both wait in place for what fills the memory; data(), and data_as of what is
  // not const, for what reads it, too, and refuse a view that had to be copied (Error{BadInput}).
  void* data() const;
  const void* const_data() const;
  template <class T>
  T* data_as() const {
    constexpr DType kOf = dtype_of<std::remove_const_t<T>>;
    CS_REQUIRE(kOf == dtype(), "data_as<", kOf, "> of a tensor of ", dtype());
    return static_cast<T*>(std::is_const_v<T> ? const_cast<void*>(const_data()) : data());
  }
  bool in_flight() const { return impl().storage->in_flight; }
  // `awaited` has completed: no longer in flight, unless other work fills it by now.
  void arrived(const std::shared_ptr<WorkState>& awaited) const;
  // Waits in place until the data have arrived; counted under `who` (waits_in_place.h).
  void wait(std::string_view who = "data") const;
  // Registers `work`, which is in flight, as a reader of this memory.
  void read_by(const Work& work) const;
  // Waits in place until nothing in flight reads the memory, which is about to be written.
  void wait_for_readers(std::string_view who) const;
  // The same place, without a wait: for memory that is new, or was waited for (the library's own).
  void* address() const {
    return static_cast<char*>(impl().storage->buffer->data()) +
           impl().offset * static_cast<std::int64_t>(size_of(impl().dtype));
  }
  const std::shared_ptr<Storage>& storage() const { return impl().storage; }
  // For the library. Which data it holds, alike on all ranks; 0: unknown (dtensor/tape/origin.h).
  std::uint64_t origin() const { return impl().origin; }
  void set_origin(std::uint64_t origin) const { impl().origin = origin; }
  // Between which ranks it is known to differ, as bits (dtensor/tape/marks.h); 0: not known.
  std::uint64_t marks() const { return impl().marks | (impl().base ? impl().base->marks : 0); }
  void set_marks(std::uint64_t marks) const { impl().marks = marks; }
  std::int64_t storage_offset() const { return impl().offset; }

  // --- gradients ---
  bool requires_grad() const;
  // For leaves. Error{BadInput}: a tensor made by an operator; an integer dtype.
  Tensor& set_requires_grad(bool value);
  bool is_leaf() const;
  Tensor grad() const;  // undefined before the first backward; may be Partial on a DTensor
  // Error{BadInput}: a gradient that does not match (fits_as_gradient).
  void set_grad(Tensor gradient) const;
  // Whether `gradient` has this tensor's shape and dtype and, if this is a DTensor, its mesh.
  bool fits_as_gradient(const Tensor& gradient) const;
  Tensor detach() const;  // the same data, outside the tape
  // Current only after requires_grad() has been called.
  const std::shared_ptr<GradMeta>& grad_meta() const { return impl().grad; }
  void set_grad_meta(std::shared_ptr<GradMeta> meta) const { impl().grad = std::move(meta); }

  // --- writes to shared memory (writes.h) ---

  // Call after writing to the memory directly, as operators do: backward then refuses to use saved
  // tensors that had the old values, and the new ones count as equal on all ranks (varies).
  // Error{BadInput}: a collective in flight still reads the memory or fills it; get data() first.
  void mark_written() const;
  // What this is a view of, or undefined. Handles from detach, to_local and from_local are none.
  Tensor base() const;
  void set_base(const Tensor& viewed) const;
  void leave_base() const {
    impl().marks = marks();
    impl().base = nullptr;
    impl().untaped_view = false;
  }
  // Whether the tape's record of this tensor matches the current contents of the memory.
  bool is_current() const { return impl().known == impl().storage->buffer->taped_write; }
  void set_current() const { impl().known = impl().storage->buffer->taped_write; }
  // Why a write would be lost or take effect twice; null: it may be written. Also holds for its
  // views.
  const char* unwritable() const { return impl().unwritable; }
  void set_unwritable(const char* why) const {
    impl().unwritable = why;
    impl().copied_view = nullptr;
  }
  // For the library. Set if a layout allowed no view, so that this is a copy, or a view of one
  // (dtensor/ops/copied_views.h).
  const std::shared_ptr<CopiedView>& copied_view() const { return impl().copied_view; }
  void set_copied_view(std::shared_ptr<CopiedView> view) const {
    impl().copied_view = std::move(view);
  }
  // For the library. Of a DTensor, the strides that it would have on one device, equal on all
  // ranks: they say which views of it are copies. Null: row-major; empty: unknown (from_local).
  const std::shared_ptr<const Strides>& logical() const { return impl().logical; }
  void set_logical(std::shared_ptr<const Strides> strides) const {
    impl().logical = std::move(strides);
  }
  // The taped write that this tensor's place on the tape belongs to.
  std::uint32_t known_write() const { return impl().known; }
  // Whether this is a view that was made off the tape, or a view of such a view.
  bool is_untaped_view() const { return impl().untaped_view; }
  // Whether no other handle shares the memory; a view whose base is gone no longer counts as one.
  bool owns_memory() const {
    if (impl_.use_count() != 1) return false;
    impl().marks = marks();
    impl().base = nullptr;
    impl().copied_view = nullptr;
    return impl().storage.use_count() == 1 &&
           (in_flight() || impl().storage->buffer.use_count() == 1);
  }

  // The local tensor's elements as doubles, row-major. Error{BadInput} for a Partial; use
  // to_local().to_vector() for its local values.
  std::vector<double> to_vector() const;
  // The only element; 0 on a rank outside the mesh. Error{BadInput}: several; a Shard or Partial.
  double item() const;

  const void* id() const { return impl_.get(); }  // equal for two handles to the same tensor

  // --- factories ---
  // New memory on this rank, uninitialized. Error{BadInput}: a negative size; 2^63 bytes or more.
  static Tensor empty(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype);
  // A DTensor whose local part is new memory.
  static Tensor empty(const std::shared_ptr<Device>& device, std::shared_ptr<const Spec> spec,
                      DType dtype);
  // Row-major values; there must be numel(shape) of them.
  static Tensor from_values(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype,
                            const ValueList& values);
  // Borrowed memory: the caller keeps it alive and unchanged as long as any view of it is used.
  static Tensor borrow(const std::shared_ptr<Device>& device, void* data, const Shape& shape,
                       DType dtype);

  void set_in_flight(Work work) const {
    impl().storage->pending = std::move(work);
    impl().storage->in_flight = true;
  }

  // A handle to part of x's memory that does not wait for the collective that fills the rest.
  static Tensor alias(const Tensor& x, const Shape& shape, const Strides& strides,
                      std::int64_t offset);

  // The same storage with another geometry and spec; off the tape.
  Tensor view_as(const Shape& local_shape, const Strides& strides, std::int64_t offset,
                 std::shared_ptr<const Spec> spec) const;
  // The same local geometry with another spec (null: a plain tensor). If this is the only handle,
  // it is changed in place.
  Tensor with_spec(std::shared_ptr<const Spec> spec) const&;
  Tensor with_spec(std::shared_ptr<const Spec> spec) &&;
  // The local tensor, off the tape.
  Tensor raw_local() const { return with_spec(nullptr); }

  // --- PyTorch's method names, for the functions in ops.h, distribute.h and tape.h ---
  int dim() const { return ndim(); }
  const Layout& placements() const { return layout(); }
  const DeviceMesh& device_mesh() const { return mesh(); }
  Tensor requires_grad_(bool value = true);
  Task<void> backward(CallSite site = CallSite::current()) const;
  Task<void> backward(Tensor gradient, CallSite site = CallSite::current()) const;
  Tensor to_local(std::optional<Layout> grad_placements = std::nullopt) const;
  Tensor full_tensor(std::optional<Layout> grad_placements = std::nullopt,
                     CallSite site = CallSite::current()) const;
  Tensor operator[](IndexAt at) const;  // x[0]: select(0, 0)
#define CS_SITE CallSite site = CallSite::current()
  Tensor to(DType dtype, CS_SITE) const;
  Tensor clone(CS_SITE) const;
  Tensor contiguous(CS_SITE) const;
  Tensor view(const Shape& shape, CS_SITE) const;
  Tensor reshape(const Shape& shape, CS_SITE) const;
  Tensor flatten(int start_dim = 0, int end_dim = -1, CS_SITE) const;
  Tensor unflatten(int dim, const Shape& sizes, CS_SITE) const;
  Tensor squeeze(CS_SITE) const;
  Tensor squeeze(int dim, CS_SITE) const;
  Tensor unsqueeze(int dim, CS_SITE) const;
  Tensor expand(const Shape& shape, CS_SITE) const;
  Tensor repeat(const Shape& repeats, CS_SITE) const;
  Tensor transpose(int dim0, int dim1, CS_SITE) const;
  Tensor t(CS_SITE) const;
  Tensor permute(const Shape& dims, CS_SITE) const;
  Tensor narrow(int dim, std::int64_t start, std::int64_t length, CS_SITE) const;
  Tensor select(int dim, std::int64_t index, CS_SITE) const;
  std::vector<Tensor> split(std::int64_t size, int dim = 0, CS_SITE) const;
  std::vector<Tensor> chunk(std::int64_t chunks, int dim = 0, CS_SITE) const;
  std::vector<Tensor> unbind(int dim = 0, CS_SITE) const;
  Tensor sum(const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor mean(const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor prod(const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor amax(const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor amin(const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor all(const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor any(const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor var(const Dims& dims = {}, double correction = 1, bool keepdim = false, CS_SITE) const;
  Tensor norm(double ord = 2, const Dims& dims = {}, bool keepdim = false, CS_SITE) const;
  Tensor max(CS_SITE) const;
  Tensor min(CS_SITE) const;
  ValuesAndIndices max(int dim, bool keepdim = false, CS_SITE) const;
  ValuesAndIndices min(int dim, bool keepdim = false, CS_SITE) const;
  Tensor argmax(std::optional<int> dim = std::nullopt, bool keepdim = false, CS_SITE) const;
  Tensor argmin(std::optional<int> dim = std::nullopt, bool keepdim = false, CS_SITE) const;
  ValuesAndIndices topk(std::int64_t k, int dim = -1, bool largest = true, CS_SITE) const;
  Tensor cumsum(int dim, CS_SITE) const;
  Tensor softmax(int dim, CS_SITE) const;
  Tensor softmax(int dim, DType dtype, CS_SITE) const;
  Tensor log_softmax(int dim, CS_SITE) const;
  Tensor log_softmax(int dim, DType dtype, CS_SITE) const;
  Tensor gather(int dim, const Tensor& index, CS_SITE) const;
  Tensor index_select(int dim, const Tensor& index, CS_SITE) const;
  Tensor masked_fill(const Tensor& mask, const Scalar& value, CS_SITE) const;
  Tensor tril(std::int64_t diagonal = 0, CS_SITE) const;
  Tensor triu(std::int64_t diagonal = 0, CS_SITE) const;
  Tensor matmul(const Tensor& other, CS_SITE) const;
  Tensor mm(const Tensor& other, CS_SITE) const;
  Tensor add(const Tensor& other, double alpha = 1, CS_SITE) const;
  Tensor sub(const Tensor& other, double alpha = 1, CS_SITE) const;
  Tensor mul(const Tensor& other, CS_SITE) const;
  Tensor div(const Tensor& other, CS_SITE) const;
  Tensor add(const Scalar& number, double alpha = 1, CS_SITE) const;
  Tensor sub(const Scalar& number, double alpha = 1, CS_SITE) const;
  Tensor mul(const Scalar& number, CS_SITE) const;
  Tensor div(const Scalar& number, CS_SITE) const;
  Tensor pow(const Scalar& exponent, CS_SITE) const;
  Tensor clamp(std::optional<Scalar> min, std::optional<Scalar> max = std::nullopt, CS_SITE) const;
  Tensor abs(CS_SITE) const;
  Tensor neg(CS_SITE) const;
  Tensor exp(CS_SITE) const;
  Tensor log(CS_SITE) const;
  Tensor sqrt(CS_SITE) const;
  Tensor rsqrt(CS_SITE) const;
  Tensor square(CS_SITE) const;
  Tensor relu(CS_SITE) const;
  Tensor sigmoid(CS_SITE) const;
  Tensor tanh(CS_SITE) const;
  Tensor add_(const Tensor& other, double alpha = 1, CS_SITE) const;
  Tensor sub_(const Tensor& other, CS_SITE) const;
  Tensor mul_(const Tensor& other, CS_SITE) const;
  Tensor div_(const Tensor& other, CS_SITE) const;
  Tensor add_(const Scalar& number, double alpha = 1, CS_SITE) const;
  Tensor sub_(const Scalar& number, CS_SITE) const;
  Tensor mul_(const Scalar& number, CS_SITE) const;
  Tensor div_(const Scalar& number, CS_SITE) const;
  Tensor clamp_(std::optional<Scalar> min, std::optional<Scalar> max = std::nullopt, CS_SITE) const;
  Tensor masked_fill_(const Tensor& mask, const Scalar& value, CS_SITE) const;
  Tensor copy_(const Tensor& other, CS_SITE) const;
  Tensor fill_(const Scalar& value, CS_SITE) const;
  Tensor zero_(CS_SITE) const;
  Tensor normal_(double mean = 0, double std = 1) const;
  Tensor uniform_(double low = 0, double high = 1) const;
#undef CS_SITE

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    std::shared_ptr<const Spec> spec;
    std::shared_ptr<GradMeta> grad;
    Shape local_shape;
    Strides strides;
    std::int64_t offset = 0;
    DType dtype = DType::F32;
    bool untaped_view = false;
    std::uint32_t known = 0;  // the taped write that `grad` belongs to
    std::shared_ptr<Impl> base;
    std::shared_ptr<CopiedView> copied_view;
    std::shared_ptr<const Strides> logical;
    const char* unwritable = nullptr;
    std::uint64_t origin = 0, marks = 0;
  };
  Impl& impl() const {
    if (!impl_) [[unlikely]]
      fail_undefined();
    return *impl_;
  }
  [[noreturn]] static void fail_undefined();
  static void wait_in_place(WorkState& work, std::string_view who, std::string_view why);
  static void wait_for_readers(Buffer& buffer, std::string_view who);
  std::shared_ptr<Impl> impl_;

 public:
  class Weak {  // a weak handle
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

// A DTensor is a Tensor with a mesh and a layout; the name states what a function expects.
using DTensor = Tensor;

// A contiguous copy of the local tensor; off the tape.
Tensor copy_of(const Tensor& tensor);

std::string describe(const Tensor& tensor);  // "f32[8,512] S(0) on tp=4", "f32[8,512]"
// How errors show a tensor.
inline std::string brief(const Tensor& tensor) { return describe(tensor); }
// Prints the values as PyTorch does, then the description (print.cpp). For a DTensor, the values
// are the local tensor's; above 1000 elements, the first and last three along each dimension. Never
// communicates: a tensor in flight prints no values.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace coshard
#pragma GCC visibility pop
