#pragma once
// New tensors with values: constants, ranges, random numbers. Named as in PyTorch.
//
//   cs::zeros({4, 8})                            a plain tensor on the device of this world
//   cs::zeros(device, {4, 8})                    on this device
//   cs::zeros(mesh, {4, 8})                      a DTensor, Replicate
//   cs::zeros(mesh, cs::Shard(0), {4, 8})        of this layout, one placement per mesh dimension
//   cs::zeros(cs::Shard(0), {4, 8})              on the mesh of the innermost DefaultMesh
//   cs::zeros(mesh, {4, 8}, cs::DType::F64, true)   another dtype; requires a gradient
//
// Shapes are those of the logical tensor. Each rank makes its part, without communication, and a
// Partial is split into terms whose reduction is the tensor (partial.h). Random numbers depend on
// the global element alone: they are the same for every layout. Error{BadInput}: a layout with more
// or fewer entries than the mesh, a dim that the shape lacks, a negative size, 2^63 bytes and more,
// no world or mesh where none is given, a gradient of a dtype that is not floating.
#include <optional>

#include <coshard/dtensor/tensor.h>

namespace coshard {

// Where a factory puts its tensor.
class Target {
 public:
  template <std::derived_from<Device> Any>
  Target(const std::shared_ptr<Any>& device) : device_(device) {}  // NOLINT: implicit
  Target(World& world);                                            // NOLINT
  Target(DeviceMesh mesh);                                         // NOLINT: Replicate
  Target(const Layout& layout);                                    // NOLINT: DefaultMesh
  Target(Placement placement) : Target(Layout(placement)) {}       // NOLINT
  Target(DeviceMesh mesh, const Layout& layout);
  static Target here();               // the device of this world
  static Target of(const Tensor& x);  // x's device, or mesh and layout with Partial as Replicate

  bool is_mesh() const { return mesh_.defined(); }
  const std::shared_ptr<Device>& device() const { return device_; }
  const DeviceMesh& mesh() const { return mesh_; }
  const Layout& layout() const { return layout_; }

 private:
  std::shared_ptr<Device> device_;
  DeviceMesh mesh_;
  Layout layout_;
};

// values of no meaning
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
// uniform [0,1); floating dtypes
Tensor rand(const Target& target, const Shape& shape, DType dtype = DType::F32,
            bool requires_grad = false);
DTensor rand(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
             DType dtype = DType::F32, bool requires_grad = false);
Tensor rand(const Shape& shape, DType dtype = DType::F32, bool requires_grad = false);
// normal(0,1); floating dtypes
Tensor randn(const Target& target, const Shape& shape, DType dtype = DType::F32,
             bool requires_grad = false);
DTensor randn(const DeviceMesh& mesh, const Layout& layout, const Shape& shape,
              DType dtype = DType::F32, bool requires_grad = false);
Tensor randn(const Shape& shape, DType dtype = DType::F32, bool requires_grad = false);

// start, start + step, … below end. Without a dtype i64, or f32 where one of the numbers is real.
Tensor arange(const Target& target, Scalar start, Scalar end, Scalar step = 1,
              std::optional<DType> dtype = std::nullopt, bool requires_grad = false);
Tensor arange(const Target& target, Scalar end);
Tensor arange(Scalar start, Scalar end, Scalar step = 1);
Tensor arange(Scalar end);
// `steps` numbers from start to end, both among them.
Tensor linspace(const Target& target, double start, double end, std::int64_t steps,
                DType dtype = DType::F32, bool requires_grad = false);
Tensor linspace(double start, double end, std::int64_t steps);
// Ones on the diagonal of [n, m]; m: n.
Tensor eye(const Target& target, std::int64_t n, std::optional<std::int64_t> m = std::nullopt,
           DType dtype = DType::F32, bool requires_grad = false);
Tensor eye(std::int64_t n);
// Integers of [low, high), evenly. At most 2^53 of them.
Tensor randint(const Target& target, std::int64_t low, std::int64_t high, const Shape& shape,
               DType dtype = DType::I64);
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape);
// The integers below n in some order. Every rank makes all of them before it keeps its part.
Tensor randperm(const Target& target, std::int64_t n, DType dtype = DType::I64);
Tensor randperm(std::int64_t n);

// In x's shape, on its device or mesh and in its layout (Replicate where x is Partial), in its
// dtype or another. x's values are not read. See also zeros_like, ones_like and full_like in
// ops_pointwise.h.
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
