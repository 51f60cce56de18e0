#include <algorithm>
#include <vector>

#include <coshard/dtensor/ops/from_local.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/mesh/partial.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/partial_gradient.h"
#include "dtensor/ops/run_check.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tape/origin.h"
#include "dtensor/tape/saved.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

class FromLocalNode final : public GradNode {
 public:
  FromLocalNode(const Shape& local_shape, const DTensor& value, const Layout& wanted)
      : local_shape_(local_shape),
        mesh_(value.mesh()),
        layout_(value.layout()),
        wanted_(wanted),
        gradient_marks_(value.spec()->marks) {
    if (gradient_needs_partial(layout_)) term_ = Saved(value);
    for (int m = 0; m < wanted.ndim(); ++m)
      if (wanted[m].is_partial()) gradient_marks_ |= mark_of(mesh_, m);
  }
  std::string_view name() const override { return "from_local"; }
  bool records_backward() const override { return !gradient_needs_partial(layout_); }
  bool shares_memory() const override { return true; }
  const Layout* gradient_layout() const override { return &wanted_; }
  bool release() override {
    term_.release();
    return gradient_needs_partial(layout_);
  }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    const Tensor& gradient = output_grads[0];
    // Recorded on the tape if second derivatives are requested.
    const Tensor part = taped(output_grads)
                            ? to_local(redistribute(gradient, wanted_).tensor(), second_gradient())
                            : redistribute_raw(gradient, wanted_).raw_local();
    part.set_marks(gradient.marks() | gradient_marks_);
    if (mesh_.contains_this_rank())
      return sink.accumulate(0, gradient_of_partial(part, term_.get(name()), mesh_, layout_));
    // A leaf gets no gradient. Otherwise the producer may be on a larger mesh, whose ranks must all
    // run its backward.
    if (!inputs[0] || !inputs[0]->producer) return;
    const Tensor none = filled(gradient.device(), local_shape_, 0, gradient.dtype());
    share_pending_work(part, none);
    sink.accumulate(0, none);
  }

 private:
  // How to read the gradient of a gradient: each rank's term of a Partial has its own.
  Layout second_gradient() const {
    Layout layout = wanted_;
    for (int m = 0; m < layout.ndim(); ++m)
      if (layout_[m].is_partial() && wanted_[m].is_replicate()) layout[m] = Partial();
    return layout;
  }

  Shape local_shape_;
  DeviceMesh mesh_;
  Layout layout_, wanted_;
  // Of the local gradient. Under a Partial each rank has a term: its gradient, though the same,
  // belongs to that.
  std::uint64_t gradient_marks_;
  Saved term_;
};

// Broadcasts the replica of the first rank of each mesh dimension; outside the mesh, where `local`
// is empty, the result is in flight whenever it is on the other ranks.
Tensor first_replica(const Tensor& local, const DeviceMesh& mesh, const Layout& layout) {
  Tensor value = local;
  for (int m = 0; m < layout.ndim(); ++m) {
    if (!layout[m].is_replicate() || mesh.size(m) == 1) continue;
    if (mesh.contains_this_rank())
      value = broadcast_along(value, mesh, m, 0, "from_local");
    else
      value.set_in_flight(Work());
  }
  return value;
}

// Which sizes the parts of one tensor have. Equal on all ranks.
enum class PartSizes {
  Even,    // all ranks have the same
  Uneven,  // at least two along each dimension that is cut
  Tiny,    // some rank has one or none along a dimension of which others have more
};

PartSizes parts_of(const Spec& spec) {
  bool even = true, tiny = false;
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    std::int64_t parts = 1, least = spec.shape[d], most = 0;
    bool strided = false;
    std::vector<int> dims;  // of the mesh, that cut d
    for (int m = 0; m < spec.layout.ndim(); ++m) {
      if (!spec.layout[m].is_sharded(static_cast<int>(d))) continue;
      parts *= spec.mesh.size(m);
      strided = strided || spec.layout[m].is_strided();
      dims.push_back(m);
    }
    if (spec.shape[d] % parts == 0 && !strided) continue;
    std::vector<int> at(static_cast<std::size_t>(spec.mesh.ndim()));
    for (std::int64_t part = 0; part < parts; ++part) {
      std::int64_t rest = part;
      for (const int m : dims) {
        at[static_cast<std::size_t>(m)] = static_cast<int>(rest % spec.mesh.size(m));
        rest /= spec.mesh.size(m);
      }
      const std::int64_t size = count_of(
          ranges_of(spec.layout, spec.mesh.shape(), at, static_cast<int>(d), spec.shape[d]));
      least = std::min(least, size);
      most = std::max(most, size);
    }
    even = even && least == most;
    tiny = tiny || (least != most && least < 2);
  }
  return even ? PartSizes::Even : tiny ? PartSizes::Tiny : PartSizes::Uneven;
}

// Whether dimension i of memory of these `sizes` lies within d: of equal strides, one of size 1
// does, and then the later one.
bool lies_within(std::size_t i, std::size_t d, const Strides& strides, const Shape& sizes) {
  if (strides[d] != strides[i]) return strides[d] > strides[i];
  const bool one_i = sizes[i] == 1, one_d = sizes[d] == 1;
  return one_i != one_d ? one_i : d < i;
}

// Those of the whole whose even shard has `own`.
Strides scaled(const Strides& own, const Shape& sizes, const Shape& shape) {
  Strides strides = own;
  for (std::size_t d = 0; d < own.size(); ++d)
    for (std::size_t i = 0; i < own.size(); ++i)
      if (lies_within(i, d, own, sizes) && sizes[i] != shape[i] && sizes[i] > 0 && own[i] > 0)
        strides[d] *= shape[i] / sizes[i];
  return strides;
}

// Without gaps, dimensions ordered as those of `sizes` under `order`.
Strides packed(const Shape& shape, const Strides& order, const Shape& sizes) {
  Strides strides = Strides::filled(shape.size(), 1);
  for (std::size_t d = 0; d < shape.size(); ++d)
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (lies_within(i, d, order, sizes)) strides[d] *= std::max<std::int64_t>(shape[i], 1);
  return strides;
}

// Whether memory of these sizes is the same under both.
bool alike(const Strides& a, const Strides& b, const Shape& sizes) {
  for (std::size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1 && a[d] != b[d]) return false;
  return true;
}
bool is_packed(const Shape& sizes, const Strides& strides, const Strides& order) {
  return numel(sizes) == 0 || alike(strides, packed(sizes, order, sizes), sizes);
}

// Whether no two elements of a whole of this shape are one, but along dimensions of which this
// rank's part repeats its own.
bool are_apart(const Strides& strides, const Shape& shape, const Strides& own, const Shape& sizes) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] <= 1 || (strides[d] == 0 && own[d] == 0)) continue;
    std::int64_t within = 0;  // the last element of what lies within
    for (std::size_t i = 0; i < shape.size(); ++i)
      if (i != d && shape[i] > 1 && lies_within(i, d, strides, shape))
        within += (shape[i] - 1) * strides[i];
    if (strides[d] <= within) return false;
  }
  return true;
}

// Whether a shard of a whole with strides `whole` may have `own`: ordered alike, and without gaps
// if the whole has none.
bool may_be_of(const Strides& whole, const Shape& shape, const Strides& own, const Shape& sizes) {
  if (is_packed(shape, whole, whole)) return is_packed(sizes, own, whole);
  for (std::size_t d = 0; d < sizes.size(); ++d)
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (sizes[d] > 1 && sizes[i] > 1 && whole[d] > whole[i] && own[d] < own[i]) return false;
  return true;
}

// Ranks whose strides are others have noted others, or nothing.
void note_strides(const DTensor& made) {
  const auto& strides = made.logical();
  if (!strides || strides->empty()) return;
  for (int m = 0; m < made.mesh().ndim(); ++m)
    for (std::size_t d = 0; d < strides->size(); ++d)
      made.mesh().note(m, {"called from_local, which its option `stride` tells apart, with stride",
                           "in dimension", static_cast<std::uint64_t>((*strides)[d]), d});
}

// What strides the whole has. Of even parts, each rank finds the same if all were made alike, which
// their next collective compares. So it does of uneven ones without gaps, where no rank has so
// little that any strides fit; elsewhere they are unknown (has_unknown_strides), perhaps on some
// ranks alone: that moves nothing, and what would depend on it is refused.
void set_strides(const FromLocalOptions& options, const Tensor& local, const DTensor& made) {
  const Strides& own = local.strides();
  const Shape& sizes = local.local_shape();
  const Shape& shape = made.shape();
  const PartSizes parts = parts_of(*made.spec());
  if (options.stride) {
    CS_REQUIRE(options.shape, "from_local: stride ", *options.stride, " was given without a shape");
    const Strides& given = *options.stride;
    const bool fits = given.size() == own.size() && are_apart(given, shape, own, sizes) &&
                      may_be_of(given, shape, own, sizes);
    CS_REQUIRE(fits, "from_local: stride ", given, " does not match ", made,
               ", whose local tensor has strides ", own, " on this rank");
    return set_logical(made, given);
  }
  if (parts != PartSizes::Tiny && own == row_major(sizes)) return;
  if (parts == PartSizes::Even && numel(sizes) == 0) return;
  if (parts == PartSizes::Even) return set_logical(made, scaled(own, sizes, shape));
  if (parts == PartSizes::Tiny || !is_packed(sizes, own, own))
    return made.set_logical(std::make_shared<const Strides>());
  set_logical(made, packed(shape, own, sizes));
}

void record_from_local(const Tensor& local, DTensor& out, const FromLocalOptions& options) {
  const Layout& layout = out.layout();
  Layout wanted = partial_as_replicate(layout);
  if (options.grad_placements) {
    wanted = normalize(*options.grad_placements, out.shape(), "from_local: grad_placements");
    CS_REQUIRE(same_shards(wanted, layout), "from_local: grad_placements ", wanted,
               " do not have the shards of ", out);
  }
  const Tensor inputs[] = {local};
  if (taped(inputs))
    push_record(std::make_shared<FromLocalNode>(local.local_shape(), out, wanted), inputs,
                std::span<Tensor>(&out, 1));
}

}  // namespace

DTensor from_local(const Tensor& local, const DeviceMesh& mesh, const Layout& placements,
                   const FromLocalOptions& options, CallSite site) {
  CS_REQUIRE(local.defined() && !local.is_distributed(), "from_local: ", local,
             " is not a plain tensor");
  require_layout_of(mesh, placements, "from_local");
  const bool here = mesh.contains_this_rank();
  const UserCall user(site);
  if (options.run_check && here)
    check_locals({local.dtype(), local.local_shape(), options.shape}, mesh, placements);
  const Layout layout =
      normalize(placements, options.shape ? *options.shape : local.local_shape(), "from_local");
  const Shape shape =
      options.shape ? *options.shape : even_shape(local.local_shape(), mesh.shape(), layout);
  CS_REQUIRE(!here || shape.size() == local.local_shape().size(), "from_local: shape ", shape,
             " has another number of dimensions than ", local);
  auto spec = make_spec(mesh, layout, shape);
  Tensor out;
  if (here) {
    CS_REQUIRE(spec->local_shape == local.local_shape(), "from_local: got ", local, " on rank ",
               mesh.world().rank(), ", but its shard of ", describe(*spec), " is ",
               spec->local_shape);
    out = (options.run_check ? first_replica(local, mesh, layout) : local).with_spec(spec);
    if (!options.shape && !options.run_check)
      note_sizes(out, "called from_local without `shape`, which implies size");
    set_strides(options, out.raw_local(), out);
    note_strides(out);
  } else {
    out = Tensor::empty(local.device(), spec, local.dtype());
    if (options.run_check) out = first_replica(out, mesh, layout);
    if (!out.in_flight() && local.in_flight())  // arrives with it, as inside the mesh
      out = local.view_as(out.local_shape(), out.strides(), 0, spec);
  }
  out = numbered(std::move(out), Numbered::DTensor);  // ranks may pass parts of other tensors
  record_from_local(local, out, options);
  return out;
}

DTensor from_local(const Tensor& local, const Layout& placements, const FromLocalOptions& options,
                   CallSite site) {
  return from_local(local, DefaultMesh::current("from_local"), placements, options, site);
}

DTensor from_local(const Tensor& local, const DeviceMesh& mesh, CallSite site) {
  return from_local(local, mesh, whole_on(mesh), {}, site);
}

DTensor from_local(const Tensor& local, CallSite site) {
  return from_local(local, DefaultMesh::current("from_local"), site);
}

}  // namespace coshard
