#include <coshard/dtensor/distribute/random.h>

#include <cmath>
#include <vector>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/runtime/coro/branch.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/distribute/partial.h"
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/ops/writes.h"
#include "kernels/run.h"
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

// The generator of this branch. Ranks call in the same order, so they draw the same streams.
const BranchLocal<RandomState> generator;

// A child of a when_all draws from its own streams, which depend only on its position, not on what
// its siblings draw or when.
void fork_generator(Branch& parent, Branch& child, int position) {
  RandomState& from = generator.own(parent);
  if (position == 0) ++from.next_stream;                       // once for all children
  const std::uint64_t seed = from.seed ^ 0x6a09e667f3bcc909U;  // sqrt(2) - 1
  generator.own(child) = {
      mix(mix(seed, from.next_stream), static_cast<std::uint64_t>(position) + 1), 0};
}
[[maybe_unused]] const bool forks = on_branch_fork(fork_generator);

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
  CS_REQUIRE(is_floating(x.dtype()), "random: ", x, " is not floating-point");
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

void manual_seed(std::uint64_t seed) { generator.own() = {seed, 0}; }
RandomState random_state() { return generator.get(); }
void set_random_state(RandomState to) { generator.own() = to; }
RandomState take_stream(const Tensor& x) {
  RandomState& state = generator.own();
  const RandomState now = state;
  ++state.next_stream;
  if (!x.defined() || !x.is_distributed() || !x.mesh().contains_this_rank()) return now;
  for (int m = 0; m < x.mesh().ndim(); ++m)
    x.mesh().note(m, {"drew random stream", "of seed", now.next_stream, now.seed});
  return now;
}

LocalRandom::LocalRandom() : before_(random_state()) {
  const World* world = World::current();
  const auto rank = static_cast<std::uint64_t>(world != nullptr ? world->rank() : 0);
  const std::uint64_t seed = before_.seed ^ 0xbb67ae8584caa73bU;  // sqrt(3) - 1
  set_random_state({mix(mix(seed, rank + 1), before_.local++), 0});
}
LocalRandom::~LocalRandom() { set_random_state(before_); }

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

}  // namespace coshard
