#include <coshard/dtensor/distribute.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "dtensor/marks.h"
#include "dtensor/origin.h"
#include "dtensor/partial.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/run_check.h"
#include "dtensor/saved.h"
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
    const Tensor none = zeros(gradient.device(), local_shape_, gradient.dtype());
    fly_with(part, none);
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

// Whether this rank's part has one element, or none, along a dimension of which others have more:
// any stride fits that.
bool fits_any_stride(const DTensor& made) {
  for (int d = 0; d < made.ndim(); ++d)
    if (const std::int64_t own = made.local_shape()[static_cast<std::size_t>(d)];
        own <= 1 && own != made.size(d))
      return true;
  return false;
}

void check_stride(const FromLocalOptions& options, const DTensor& made) {
  if (!options.stride) return;
  CS_REQUIRE(options.shape, "from_local: stride ", *options.stride, " was given without a shape");
  if (fits_any_stride(made)) return;
  const Strides own = logical_strides(made);
  CS_REQUIRE(*options.stride == own, "from_local: stride ", *options.stride, " does not match ",
             made, ", whose local tensors have strides like ", own);
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
    check_stride(options, out);
    if (!options.shape && !options.run_check)
      note_sizes(out, "called from_local without `shape`, which implies size");
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
