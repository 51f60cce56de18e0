#pragma once
// New tensors with values: constants, ranges, random numbers. Named as in PyTorch.
//
//   cs::zeros({4, 8})                              a plain tensor on the device of this world
//   cs::zeros(device, {4, 8})                      on this device
//   cs::zeros(mesh, {4, 8})                        a DTensor, Replicate
//   cs::zeros(mesh, cs::Shard(0), {4, 8})          in this layout, one placement per mesh dimension
//   cs::zeros(cs::Shard(0), {4, 8})                on the mesh of the innermost DefaultMesh
//   cs::zeros(mesh, {4, 8}, cs::DType::F64, true)  another dtype; requires a gradient
//
// Shapes are logical. Each rank makes its local tensor without communication; a Partial is split
// into partial values that reduce to the tensor (partial.h). A random number depends only on the
// global index of its element, so it is the same in every layout.
//   Fails: Error{BadInput}: a layout with more or fewer entries than the mesh, or with a dim the
//          shape lacks; a negative size; 2^63 bytes or more; no mesh or world where one is needed;
//          requires_grad with a dtype that is not floating-point.
#include <optional>

#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

// Where a factory places its tensor.
class Target {
 public:
  template <std::derived_from<Device> Any>
  Target(const std::shared_ptr<Any>& device) : device_(device) {}  // NOLINT: implicit
  Target(World& world);                                            // NOLINT
  Target(DeviceMesh mesh);                                         // NOLINT: Replicate
  Target(const Layout& layout);                                    // NOLINT: DefaultMesh
  Target(Placement placement) : Target(Layout(placement)) {}       // NOLINT
  Target(DeviceMesh mesh, const Layout& layout);
  static Target here();  // the device of this world
  // x's device, or its mesh and layout with Partial read as Replicate.
  static Target of(const Tensor& x);

  bool is_mesh() const { return mesh_.defined(); }
  const std::shared_ptr<Device>& device() const { return device_; }
  const DeviceMesh& mesh() const { return mesh_; }
  const Layout& layout() const { return layout_; }

 private:
  std::shared_ptr<Device> device_;
  DeviceMesh mesh_;
  Layout layout_;
};

// Uninitialized.
Tensor empty(const Target& target, const Shape& shape, DType dtype = DType::F32,
             bool requires_grad = false);
DTensor empty(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
              DType dtype = DType::F32, bool requires_grad = false);
Tensor empty(const Shape& shape, DType dtype = DType::F32, bool requires_grad = false);
Tensor zeros(const Target& target, const Shape& shape, DType dtype = DType::F32,
             bool requires_grad = false);
DTensor zeros(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
              DType dtype = DType::F32, bool requires_grad = false);
Tensor zeros(const Shape& shape, DType dtype = DType::F32, bool requires_grad = false);
Tensor ones(const Target& target, const Shape& shape, DType dtype = DType::F32,
            bool requires_grad = false);
DTensor ones(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
             DType dtype = DType::F32, bool requires_grad = false);
Tensor ones(const Shape& shape, DType dtype = DType::F32, bool requires_grad = false);
Tensor full(const Target& target, const Shape& shape, double value, DType dtype = DType::F32,
            bool requires_grad = false);
DTensor full(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, double value,
             DType dtype = DType::F32, bool requires_grad = false);
Tensor full(const Shape& shape, double value, DType dtype = DType::F32, bool requires_grad = false);
// Uniform on [0, 1); floating-point dtypes.
Tensor rand(const Target& target, const Shape& shape, DType dtype = DType::F32,
            bool requires_grad = false);
DTensor rand(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
             DType dtype = DType::F32, bool requires_grad = false);
Tensor rand(const Shape& shape, DType dtype = DType::F32, bool requires_grad = false);
// Standard normal; floating-point dtypes.
Tensor randn(const Target& target, const Shape& shape, DType dtype = DType::F32,
             bool requires_grad = false);
DTensor randn(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
              DType dtype = DType::F32, bool requires_grad = false);
Tensor randn(const Shape& shape, DType dtype = DType::F32, bool requires_grad = false);

// start, start + step, … up to but excluding end. Default dtype: i64, or f32 if one of the numbers
// is floating-point.
Tensor arange(const Target& target, Scalar start, Scalar end, Scalar step = 1,
              std::optional<DType> dtype = std::nullopt, bool requires_grad = false);
Tensor arange(const Target& target, Scalar end);
Tensor arange(Scalar start, Scalar end, Scalar step = 1);
Tensor arange(Scalar end);
// `steps` evenly spaced numbers from start to end, both included.
Tensor linspace(const Target& target, double start, double end, std::int64_t steps,
                DType dtype = DType::F32, bool requires_grad = false);
Tensor linspace(double start, double end, std::int64_t steps);
// Ones on the diagonal of an [n, m] matrix; m defaults to n.
Tensor eye(const Target& target, std::int64_t n, std::optional<std::int64_t> m = std::nullopt,
           DType dtype = DType::F32, bool requires_grad = false);
Tensor eye(std::int64_t n);
// Uniform integers in [low, high), which may span at most 2^53.
Tensor randint(const Target& target, std::int64_t low, std::int64_t high, const Shape& shape,
               DType dtype = DType::I64);
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape);
// A random permutation of 0 … n-1. Every rank generates all of it and keeps its part.
Tensor randperm(const Target& target, std::int64_t n, DType dtype = DType::I64);
Tensor randperm(std::int64_t n);

// With x's shape, device or mesh, layout (Partial read as Replicate), and dtype unless another is
// given. x's values are not read. See also zeros_like, ones_like and full_like in ops_pointwise.h.
Tensor full_like(const Tensor& x, const Scalar& value, DType dtype, bool requires_grad = false);
Tensor zeros_like(const Tensor& x, DType dtype, bool requires_grad = false);
Tensor ones_like(const Tensor& x, DType dtype, bool requires_grad = false);
Tensor empty_like(const Tensor& x, std::optional<DType> dtype = std::nullopt,
                  bool requires_grad = false);
Tensor rand_like(const Tensor& x, std::optional<DType> dtype = std::nullopt,
                 bool requires_grad = false);
Tensor randn_like(const Tensor& x, std::optional<DType> dtype = std::nullopt,
                  bool requires_grad = false);

}  // namespace coshard
#pragma GCC visibility pop
