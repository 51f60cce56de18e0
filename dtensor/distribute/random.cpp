#include <coshard/dtensor/distribute/random.h>

#include <cmath>
#include <vector>

#include "dtensor/capture/step_graph.h"
#include "dtensor/mesh/partial.h"
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/ops/writes.h"
#include "kernels/run.h"

namespace coshard {
namespace {

// One box of x's elements: its position in the logical tensor and in x.
struct RandomBox {
  Shape shape, global, local;
};

// A StridedShard holds several ranges of a dimension: one box for each choice of ranges.
std::vector<RandomBox> random_boxes(const Tensor& x) {
  std::vector<RandomBox> boxes(1);
  for (int d = 0; d < x.ndim(); ++d) {
    std::vector<Range> ranges{{0, x.shape()[static_cast<std::size_t>(d)]}};
    if (x.is_distributed())
      ranges = ranges_of(x.layout(), x.mesh().shape(), x.mesh().coordinate(), d, ranges[0].end);
    std::vector<RandomBox> next;
    for (const RandomBox& box : boxes) {
      std::int64_t local = 0;
      for (const Range& range : ranges) {
        RandomBox cut = box;
        cut.shape.push_back(range.end - range.begin);
        cut.global.push_back(range.begin);
        cut.local.push_back(local);
        local += range.end - range.begin;
        next.push_back(cut);
      }
    }
    boxes = next;
  }
  return boxes;
}

void draw_box(const Tensor& x, const RandomBox& box, kernels::Random drawing) {
  kernels::RandomRegion& region = drawing.region;
  region.ndim = x.ndim();
  const Strides strides = row_major(x.shape());
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    region.shape[d] = box.shape[d];
    region.offset[d] = box.global[d];
    region.global_strides[d] = strides[d];
    offset += box.local[d] * x.strides()[d];
  }
  const bool all = box.shape == x.local_shape() && x.is_contiguous();
  const Tensor part = all ? x : Tensor::empty(x.device(), box.shape, x.dtype());
  drawing.out = part.address();
  kernels::run(*x.device(), drawing);
  if (all) return;
  const Tensor there = x.view_as(box.shape, x.strides(), x.storage_offset() + offset, nullptr);
  kernels::run(*x.device(), kernels::Copy{view_of(there), view_of(part)});
}

void draw(const Tensor& x, kernels::RandomKind kind, double scale, double shift) {
  CS_REQUIRE(is_floating(x.dtype()), "random: ", x, " is none of f32, f64, bf16 and f16");
  const RandomState stream = take_stream(x);  // on every rank, so that they stay in step
  if (x.local_numel() == 0) return;
  kernels::Random drawing{};
  drawing.kind = kind;
  drawing.dtype = x.dtype();
  drawing.seed = stream.seed;
  drawing.stream = stream.next_stream;
  if (const StepGraph* step = StepGraph::recording())
    drawing.origin = step->random_origin(stream, &drawing.stream);
  drawing.scale = scale;
  drawing.shift = shift;
  for (const RandomBox& box : random_boxes(x)) draw_box(x, box, drawing);
  // For a Partial, most ranks hold a constant instead of the value.
  if (!x.is_distributed()) return;
  if (const auto term = partial_in_place_of_value(x.mesh(), x.layout())) {
    const Tensor one = Tensor::empty(x.device(), Shape(), x.dtype());
    kernels::run(*x.device(), kernels::Fill{one.address(), x.dtype(), 1, *term});
    kernels::run(*x.device(), kernels::Copy{view_of(x), broadcast_view(one, x.local_shape())});
  }
}

}  // namespace

void normal_(const Tensor& x, double mean, double std) {
  CS_REQUIRE(!(std < 0), "normal_: std must not be negative, got ", std);
  if (x.in_flight() && draw_later(x, "normal_", [=](const Tensor& y) { normal_(y, mean, std); }))
    return;
  require_writable(x, "normal_");
  draw(x, kernels::RandomKind::Normal, std, mean);
  record_constant_write(x);
  write_back(x);
}
void uniform_(const Tensor& x, double low, double high) {
  CS_REQUIRE(low <= high && std::isfinite(high - low), "uniform_: invalid range from ", low, " to ",
             high);
  if (x.in_flight() && draw_later(x, "uniform_", [=](const Tensor& y) { uniform_(y, low, high); }))
    return;
  require_writable(x, "uniform_");
  draw(x, kernels::RandomKind::Uniform, high - low, low);
  record_constant_write(x);
  write_back(x);
}

Tensor Tensor::normal_(double mean, double std) const {
  coshard::normal_(*this, mean, std);
  return *this;
}
Tensor Tensor::uniform_(double low, double high) const {
  coshard::uniform_(*this, low, high);
  return *this;
}

}  // namespace coshard
