#include <coshard/dtensor/distribute/factories.h>

#include <cmath>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/distribute/random.h>
#include <coshard/dtensor/mesh/default_mesh.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/mesh/partial.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/tape/origin.h"
#include "kernels/run.h"

namespace coshard {
namespace {

// For a Partial, most ranks hold a constant instead of the value.
void fill_new(const Tensor& x, double value) {
  const auto term =
      x.is_distributed() ? partial_in_place_of_value(x.mesh(), x.layout()) : std::nullopt;
  kernels::run(*x.device(),
               kernels::Fill{x.address(), x.dtype(), x.local_numel(), term.value_or(value)});
}

Tensor marked(Tensor x, bool requires_grad) {
  if (requires_grad) x.set_requires_grad(true);
  return x;
}

// The target on which every rank makes the whole tensor, before it keeps its part.
Target whole(const Target& target) { return target.is_mesh() ? Target(target.mesh()) : target; }
Tensor part_of(const Tensor& whole, const Target& target, bool requires_grad) {
  const Tensor part = target.is_mesh() ? redistribute_raw(whole, target.layout()) : whole;
  return marked(part, requires_grad);
}

// From host values that are equal on every rank.
Tensor listed(const Target& target, const Shape& shape, DType dtype, const std::vector<double>& all,
              bool requires_grad) {
  const Tensor values = Tensor::from_values(target.device(), shape, dtype, all);
  if (!target.is_mesh()) return marked(values, requires_grad);
  return marked(distribute_tensor(values, target.mesh(), target.layout(), std::nullopt),
                requires_grad);
}

// A Target is made before the function that takes it runs.
constexpr const char* kFactories = "zeros, randn or another factory";

}  // namespace

Target::Target(World& world) : device_(world.device()) {}
Target::Target(DeviceMesh mesh) : Target(mesh, whole_on(mesh)) {}
Target::Target(const Layout& layout) : Target(DefaultMesh::current(kFactories), layout) {}
Target::Target(DeviceMesh mesh, const Layout& layout) {
  require_layout_of(mesh, layout, kFactories);
  layout_ = layout;
  device_ = mesh.world().device();
  mesh_ = std::move(mesh);
}
Target Target::here() {
  World* world = World::current();
  CS_REQUIRE(world, kFactories,
             ": no device was given, and no world runs on this thread; pass a device or a mesh, or "
             "call it in the function that `run` runs");
  return *world;
}
Target Target::of(const Tensor& x) {
  if (!x.is_distributed()) return x.device();
  return {x.mesh(), partial_as_replicate(x.layout())};
}

Tensor empty(const Target& target, const Shape& shape, DType dtype, bool requires_grad) {
  const auto spec = target.is_mesh() ? make_spec(target.mesh(), target.layout(), shape) : nullptr;
  Tensor x = empty_later(target.device(), spec, spec ? spec->local_shape : shape, dtype);
  if (!x.defined())
    x = spec ? Tensor::empty(target.device(), spec, dtype)
             : Tensor::empty(target.device(), shape, dtype);
  return marked(spec ? numbered(std::move(x), Numbered::DTensor) : std::move(x), requires_grad);
}
Tensor full(const Target& target, const Shape& shape, double value, DType dtype,
            bool requires_grad) {
  require_fits(value, dtype, "full");
  const Tensor x = empty(target, shape, dtype);
  if (!x.in_flight() || !fill_later(x, [value](const Tensor& y) { fill_new(y, value); }))
    fill_new(x, value);
  return marked(x, requires_grad);
}
Tensor zeros(const Target& target, const Shape& shape, DType dtype, bool requires_grad) {
  return full(target, shape, 0, dtype, requires_grad);
}
Tensor ones(const Target& target, const Shape& shape, DType dtype, bool requires_grad) {
  return full(target, shape, 1, dtype, requires_grad);
}
Tensor rand(const Target& target, const Shape& shape, DType dtype, bool requires_grad) {
  const Tensor x = empty(target, shape, dtype);
  uniform_(x, 0, 1);
  return marked(x, requires_grad);
}
Tensor randn(const Target& target, const Shape& shape, DType dtype, bool requires_grad) {
  const Tensor x = empty(target, shape, dtype);
  normal_(x, 0, 1);
  return marked(x, requires_grad);
}

DTensor empty(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype,
              bool requires_grad) {
  return empty(Target(mesh, layout), shape, dtype, requires_grad);
}
Tensor empty(const Shape& shape, DType dtype, bool requires_grad) {
  return empty(Target::here(), shape, dtype, requires_grad);
}
DTensor zeros(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype,
              bool requires_grad) {
  return zeros(Target(mesh, layout), shape, dtype, requires_grad);
}
Tensor zeros(const Shape& shape, DType dtype, bool requires_grad) {
  return zeros(Target::here(), shape, dtype, requires_grad);
}
DTensor ones(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype,
             bool requires_grad) {
  return ones(Target(mesh, layout), shape, dtype, requires_grad);
}
Tensor ones(const Shape& shape, DType dtype, bool requires_grad) {
  return ones(Target::here(), shape, dtype, requires_grad);
}
DTensor full(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, double value,
             DType dtype, bool requires_grad) {
  return full(Target(mesh, layout), shape, value, dtype, requires_grad);
}
Tensor full(const Shape& shape, double value, DType dtype, bool requires_grad) {
  return full(Target::here(), shape, value, dtype, requires_grad);
}
DTensor rand(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype,
             bool requires_grad) {
  return rand(Target(mesh, layout), shape, dtype, requires_grad);
}
Tensor rand(const Shape& shape, DType dtype, bool requires_grad) {
  return rand(Target::here(), shape, dtype, requires_grad);
}
DTensor randn(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype,
              bool requires_grad) {
  return randn(Target(mesh, layout), shape, dtype, requires_grad);
}
Tensor randn(const Shape& shape, DType dtype, bool requires_grad) {
  return randn(Target::here(), shape, dtype, requires_grad);
}

Tensor arange(const Target& target, Scalar start, Scalar end, Scalar step,
              std::optional<DType> dtype, bool requires_grad) {
  const double count = std::ceil((end.value - start.value) / step.value);
  CS_REQUIRE(step.value != 0 && count >= 0 && count < 0x1p53, "arange: invalid range from ",
             start.value, " to ", end.value, " with step ", step.value);
  const bool real = is_floating(start.dtype) || is_floating(end.dtype) || is_floating(step.dtype);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = start.value + static_cast<double>(i) * step.value;
  const Shape shape{values.size()};
  return listed(target, shape, dtype.value_or(real ? DType::F32 : DType::I64), values,
                requires_grad);
}
Tensor arange(const Target& target, Scalar end) { return arange(target, 0, end); }
Tensor arange(Scalar start, Scalar end, Scalar step) {
  return arange(Target::here(), start, end, step);
}
Tensor arange(Scalar end) { return arange(Target::here(), 0, end); }

Tensor linspace(const Target& target, double start, double end, std::int64_t steps, DType dtype,
                bool requires_grad) {
  require_size({steps}, sizeof(double), "linspace");
  std::vector<double> values(static_cast<std::size_t>(steps), start);
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  for (std::size_t i = 0; i < values.size(); ++i)  // from the nearer end, so that both are exact
    values[i] = i < values.size() / 2 || steps == 1
                    ? start + static_cast<double>(i) * step
                    : end - static_cast<double>(values.size() - 1 - i) * step;
  return listed(target, {steps}, dtype, values, requires_grad);
}
Tensor linspace(double start, double end, std::int64_t steps) {
  return linspace(Target::here(), start, end, steps);
}

Tensor eye(const Target& target, std::int64_t n, std::optional<std::int64_t> m, DType dtype,
           bool requires_grad) {
  const MakeNow now(target.is_mesh());  // a part is taken of it
  const Shape shape{n, m.value_or(n)};
  const Tensor square = full(whole(target), shape, 0, dtype);
  if (square.local_numel() > 0) {
    const Tensor line = square.view_as({std::min(shape[0], shape[1])}, {shape[1] + 1}, 0, nullptr);
    fill_(line, 1);
  }
  return part_of(square, target, requires_grad);
}
Tensor eye(std::int64_t n) { return eye(Target::here(), n); }

Tensor randint(const Target& target, std::int64_t low, std::int64_t high, const Shape& shape,
               DType dtype) {
  const MakeNow now(target.is_mesh());
  const double range = static_cast<double>(high) - static_cast<double>(low);
  CS_REQUIRE(range > 0 && range <= 0x1p53, "randint: invalid range from ", low, " to ", high);
  const Target values =
      target.is_mesh() ? Target(target.mesh(), partial_as_replicate(target.layout())) : target;
  const Tensor drawn = floor(mul(rand(values, shape, DType::F64), range));
  const Tensor whole = to(clamp(add(drawn, static_cast<double>(low)), low, high - 1), dtype);
  return part_of(whole, target, false);
}
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape) {
  return randint(Target::here(), low, high, shape);
}

Tensor randperm(const Target& target, std::int64_t n, DType dtype) {
  const MakeNow now(target.is_mesh());
  const Tensor order = argsort(rand(whole(target), {n}, DType::F64), 0);
  return part_of(to(order, dtype), target, false);
}
Tensor randperm(std::int64_t n) { return randperm(Target::here(), n); }

Tensor full_like(const Tensor& x, const Scalar& value, DType dtype, bool requires_grad) {
  return full(Target::of(x), x.shape(), value.value, dtype, requires_grad);
}
Tensor zeros_like(const Tensor& x, DType dtype, bool requires_grad) {
  return full_like(x, 0, dtype, requires_grad);
}
Tensor ones_like(const Tensor& x, DType dtype, bool requires_grad) {
  return full_like(x, 1, dtype, requires_grad);
}
Tensor empty_like(const Tensor& x, std::optional<DType> dtype, bool requires_grad) {
  return empty(Target::of(x), x.shape(), dtype.value_or(x.dtype()), requires_grad);
}
Tensor rand_like(const Tensor& x, std::optional<DType> dtype, bool requires_grad) {
  return rand(Target::of(x), x.shape(), dtype.value_or(x.dtype()), requires_grad);
}
Tensor randn_like(const Tensor& x, std::optional<DType> dtype, bool requires_grad) {
  return randn(Target::of(x), x.shape(), dtype.value_or(x.dtype()), requires_grad);
}

}  // namespace coshard
