#include "dtensor/random.h"

#include "kernels/run.h"

namespace coshard {
namespace {

// The generator of this rank. Ranks call in the same order, so they draw the same streams.
thread_local RandomState state;

kernels::RandomRegion region_of(const Tensor& x) {
  kernels::RandomRegion region{};
  region.ndim = x.ndim();
  const Strides strides = row_major(x.shape());
  for (std::size_t d = 0; d < strides.size(); ++d) {
    region.shape[d] = x.local_shape()[d];
    region.offset[d] = x.is_distributed() ? x.spec()->offset[d] : 0;
    region.global_strides[d] = strides[d];
  }
  return region;
}

void draw(const Tensor& x, kernels::RandomKind kind, double scale, double shift) {
  CS_REQUIRE(is_floating(x.dtype()), "random: ", x, " is not floating");
  CS_REQUIRE(x.is_contiguous(), "random: ", x, " is not contiguous");
  const RandomState stream = take_stream();
  kernels::run(x.device()->kind(), kernels::Random{kind, x.dtype(), region_of(x), stream.seed,
                                                   stream.next_stream, scale, shift, x.data()});
}

Tensor filled(Tensor x, double value) {
  fill_(x, value);
  return x;
}

Tensor drawn(Tensor x, kernels::RandomKind kind) {
  draw(x, kind, 1, 0);
  return x;
}

}  // namespace

void manual_seed(std::uint64_t seed) { state = {seed, 0}; }
RandomState random_state() { return state; }
void set_random_state(RandomState to) { state = to; }
RandomState take_stream() {
  const RandomState now = state;
  ++state.next_stream;
  return now;
}

void fill_(const Tensor& x, double value) {
  CS_REQUIRE(x.is_contiguous(), "fill_: ", x, " is not contiguous");
  kernels::run(x.device()->kind(), kernels::Fill{x.data(), x.dtype(), x.local_numel(), value});
}
void normal_(const Tensor& x, double mean, double std) {
  draw(x, kernels::RandomKind::Normal, std, mean);
}
void uniform_(const Tensor& x, double low, double high) {
  draw(x, kernels::RandomKind::Uniform, high - low, low);
}

using DevicePtr = std::shared_ptr<Device>;

Tensor full(const DevicePtr& device, const Shape& shape, double value, DType dtype) {
  return filled(Tensor::empty(device, shape, dtype), value);
}
Tensor zeros(const DevicePtr& device, const Shape& shape, DType dtype) {
  return full(device, shape, 0, dtype);
}
Tensor ones(const DevicePtr& device, const Shape& shape, DType dtype) {
  return full(device, shape, 1, dtype);
}
Tensor rand(const DevicePtr& device, const Shape& shape, DType dtype) {
  return drawn(Tensor::empty(device, shape, dtype), kernels::RandomKind::Uniform);
}
Tensor randn(const DevicePtr& device, const Shape& shape, DType dtype) {
  return drawn(Tensor::empty(device, shape, dtype), kernels::RandomKind::Normal);
}

DTensor empty(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype) {
  return Tensor::empty(mesh.world().device(), make_spec(mesh, layout, shape), dtype);
}
DTensor full(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, double value,
             DType dtype) {
  return filled(empty(mesh, layout, shape, dtype), value);
}
DTensor zeros(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype) {
  return full(mesh, layout, shape, 0, dtype);
}
DTensor ones(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype) {
  return full(mesh, layout, shape, 1, dtype);
}
DTensor rand(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype) {
  return drawn(empty(mesh, layout, shape, dtype), kernels::RandomKind::Uniform);
}
DTensor randn(const DeviceMesh& mesh, const Layout& layout, const Shape& shape, DType dtype) {
  return drawn(empty(mesh, layout, shape, dtype), kernels::RandomKind::Normal);
}

}  // namespace coshard
