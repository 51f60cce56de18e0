#include "dtensor/ops/strided.h"

#include <algorithm>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/ops/local.h"
#include "dtensor/redistribute/execute.h"
#include "kernels/run.h"

namespace coshard {
namespace {

enum class Map : std::uint8_t { Gather, Scatter, Mask };

Tensor map(Map kind, const Tensor& x, const ViewPlace& place);

// Where a map leads from, or to.
const std::shared_ptr<const Spec>& from_spec(Map kind, const ViewPlace& place) {
  return kind == Map::Scatter ? place.spec : place.base_spec;
}
const std::shared_ptr<const Spec>& to_spec(Map kind, const ViewPlace& place) {
  return kind == Map::Gather ? place.spec : place.base_spec;
}

// The record of one of the maps: its gradient is the adjoint map.
class StridedNode final : public GradNode {
 public:
  StridedNode(Map kind, const ViewPlace& place) : kind_(kind), place_(place) {
    if (const auto& spec = to_spec(kind, place)) layout_ = partial_as_replicate(spec->layout);
  }
  std::string_view name() const override { return "view"; }
  bool records_backward() const override { return true; }
  const Layout* gradient_layout() const override {
    return to_spec(kind_, place_) ? &layout_ : nullptr;
  }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    const Map back = kind_ == Map::Gather    ? Map::Scatter
                     : kind_ == Map::Scatter ? Map::Gather
                                             : Map::Mask;
    sink.accumulate(0, map(back, output_grads[0], place_));
  }

 private:
  Map kind_;
  ViewPlace place_;
  Layout layout_;
};

void copy(const Tensor& to, const Tensor& from) {
  if (to.local_numel() > 0) kernels::run(*to.device(), kernels::Copy{view_of(to), view_of(from)});
}

// Sums over the dimensions of an expanded view, whose elements are aliased.
Tensor summed(const Tensor& y, const ViewPlace& place) {
  Shape dims;
  for (std::size_t d = 0; d < place.shape.size(); ++d)
    if (place.strides[d] == 0 && place.shape[d] > 1) dims.push_back(static_cast<std::int64_t>(d));
  return dims.empty() ? y : sum(y, dims, true);
}

// Of an expanded base, the first of the elements that are one in memory stands for all: a gradient
// counts once.
Shape first_of_aliased(const ViewPlace& p) {
  Shape shape = p.base_shape;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (p.base_strides[d] == 0) shape[d] = std::min<std::int64_t>(shape[d], 1);
  return shape;
}

Tensor mapped(Map kind, const Tensor& x, const ViewPlace& p) {
  const Tensor memory = kind == Map::Scatter ? filled(x.device(), Shape{p.extent}, 0, x.dtype())
                                             : Tensor::empty(x.device(), {p.extent}, x.dtype());
  const Shape first = first_of_aliased(p);
  const Tensor base = memory.view_as(first, p.base_strides, 0, nullptr);
  const Tensor view = memory.view_as(p.shape, p.strides, p.offset, nullptr);
  const auto first_in = [&](const Tensor& all) {
    return all.view_as(first, all.strides(), all.storage_offset(), nullptr);
  };
  if (kind == Map::Scatter) {
    copy(view, x);
    if (first == p.base_shape) return base;
    const Tensor all = filled(x.device(), p.base_shape, 0, x.dtype());
    copy(first_in(all), base);
    return all;
  }
  copy(base, first_in(x));
  if (kind == Map::Gather) return copy_of(view);
  const Tensor zero = filled(x.device(), Shape(), 0, x.dtype());
  copy(view, zero.view_as(p.shape, Strides::filled(p.shape.size(), 0), 0, nullptr));
  return memory.view_as(p.base_shape, p.base_strides, 0, nullptr);
}

// In the layout that a map needs: shards as the view's, and no Partial.
Tensor lined_up(const Tensor& x, const std::shared_ptr<const Spec>& spec) {
  if (!spec) return x;
  const Layout wanted = partial_as_replicate(spec->layout);
  if (x.layout() == wanted) return x;
  const Tensor inputs[] = {x};
  return taped(inputs) ? redistribute(x, wanted).tensor() : redistribute_raw(x, wanted);
}

Tensor map(Map kind, const Tensor& x, const ViewPlace& place) {
  ViewPlace used = place;
  const Tensor placed = lined_up(x, from_spec(kind, place));
  const Tensor from = kind == Map::Scatter ? summed(placed, place) : placed;
  if (kind == Map::Scatter) used.shape = from.local_shape();
  Tensor result = mapped(kind, from.is_distributed() ? from.raw_local() : from, used);
  result.set_marks(x.marks());
  if (const auto& spec = to_spec(kind, place)) {
    const Layout layout = partial_as_replicate(spec->layout);
    result = std::move(result).with_spec(make_spec(spec->mesh, layout, spec->shape));
  }
  const Tensor inputs[] = {from};
  if (taped(inputs))
    push_record(std::make_shared<StridedNode>(kind, used), inputs, std::span<Tensor>(&result, 1));
  return result;
}

}  // namespace

ViewPlace::ViewPlace(const Tensor& base, const Tensor& view)
    : base_shape(base.local_shape()),
      shape(view.local_shape()),
      base_strides(base.strides()),
      strides(view.strides()),
      offset(view.local_numel() > 0 ? view.storage_offset() - base.storage_offset() : 0),
      extent(base.local_numel() > 0 ? 1 : 0),
      base_spec(base.spec()),
      spec(view.spec()) {
  for (std::size_t d = 0; d < base_shape.size() && extent > 0; ++d)
    extent += (base_shape[d] - 1) * base_strides[d];
}

Tensor gathered(const Tensor& x, const ViewPlace& place) { return map(Map::Gather, x, place); }
Tensor scattered(const Tensor& y, const ViewPlace& place) { return map(Map::Scatter, y, place); }
Tensor masked(const Tensor& x, const ViewPlace& place) { return map(Map::Mask, x, place); }

std::shared_ptr<GradNode> make_view_node(const ViewPlace& place) {
  return std::make_shared<StridedNode>(Map::Gather, place);
}

}  // namespace coshard
