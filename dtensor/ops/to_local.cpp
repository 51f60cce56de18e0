// Plain tensors from DTensors, and what the two share.
#include <coshard/dtensor/ops/from_local.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/mesh/partial.h"
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/local.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/tape/marks.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

class ToLocalNode final : public GradNode {
 public:
  // `layout`: of the tensor itself.
  ToLocalNode(std::shared_ptr<const Spec> gradient_spec, const Layout& layout)
      : gradient_spec_(std::move(gradient_spec)), whole_(gradient_spec_->layout) {
    for (int m = 0; m < layout.ndim(); ++m)
      if (!layout[m].is_replicate()) whole_[m] = layout[m];
  }
  std::string_view name() const override { return "to_local"; }
  bool records_backward() const override { return true; }
  bool shares_memory() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    const Tensor& gradient = output_grads[0];
    CS_REQUIRE(gradient.local_shape() == gradient_spec_->local_shape, "to_local: gradient ",
               gradient, " does not match ", describe(*gradient_spec_));
    const std::uint64_t wrong = marks_against(gradient.marks(), gradient_spec_->mesh, whole_);
    CS_REQUIRE(wrong == 0, "to_local: the gradient of the local tensor of ",
               describe(*gradient_spec_), " was computed from shards or terms of ", names_of(wrong),
               " and differs by rank, but is read as Replicate there; pass grad_placements with "
               "Partial() for that dimension (local_output_grad_placements of a style)");
    if (!taped(output_grads)) {
      const Tensor rows = gradient.is_contiguous() ? gradient : copy_later(gradient);
      return sink.accumulate(0, rows.with_spec(gradient_spec_));
    }
    FromLocalOptions options;  // recorded, for gradients of gradients
    options.shape = gradient_spec_->shape;
    options.stride = row_major(gradient_spec_->shape);
    sink.accumulate(
        0, from_local(contiguous(gradient), gradient_spec_->mesh, gradient_spec_->layout, options));
  }

 private:
  std::shared_ptr<const Spec> gradient_spec_;
  Layout whole_;  // Replicate where the gradient has to be the same on all ranks
};

}  // namespace

void require_layout_of(const DeviceMesh& mesh, const Layout& placements, const char* what) {
  CS_REQUIRE(mesh.defined(), what, ": the mesh is undefined");
  CS_REQUIRE(placements.ndim() == mesh.ndim(), what, ": layout ", placements, " has ",
             placements.ndim(), " entries, the mesh ", mesh, " has ", mesh.ndim(), " dimensions");
}

Layout whole_on(const DeviceMesh& mesh) {
  CS_REQUIRE(mesh.defined(), "the mesh is undefined");
  return Layout::filled(mesh.ndim(), Replicate());
}

Tensor to_local(const DTensor& tensor, std::optional<Layout> grad_placements) {
  CS_REQUIRE(tensor.defined() && tensor.is_distributed(), "to_local: ", tensor,
             " is a plain tensor");
  Layout layout = partial_as_replicate(tensor.layout());
  if (grad_placements) {
    require_layout_of(tensor.mesh(), *grad_placements, "to_local: grad_placements");
    layout = normalize(*grad_placements, tensor.shape(), "to_local: grad_placements");
    CS_REQUIRE(same_shards(layout, tensor.layout()), "to_local: grad_placements ", layout,
               " do not have the shards of ", tensor);
  }
  require_up_to_date(tensor);
  Tensor out = tensor.raw_local();
  if (const std::uint64_t more = tensor.spec()->marks; more != 0)
    out.set_marks(tensor.marks() | more);
  const Tensor inputs[] = {tensor};
  if (taped(inputs))
    push_record(std::make_shared<ToLocalNode>(make_spec(tensor.mesh(), layout, tensor.shape()),
                                              tensor.layout()),
                inputs, std::span<Tensor>(&out, 1));
  return out;
}

Tensor full_tensor(const DTensor& tensor, std::optional<Layout> grad_placements, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(tensor.defined() && tensor.is_distributed(), "full_tensor: ", tensor,
             " is a plain tensor");
  const Redistribution whole =
      redistribute(tensor, Layout::filled(tensor.mesh().ndim(), Replicate()));
  Tensor out = to_local(whole.tensor(), grad_placements);
  out.wait("full_tensor");
  return out;
}

Strides logical_strides(const DTensor& tensor) {
  CS_REQUIRE(tensor.defined() && tensor.is_distributed(), "logical_strides: ", tensor,
             " is a plain tensor");
  CS_REQUIRE(!has_unknown_strides(tensor), "logical_strides: from_local was not told those of ",
             tensor, ", whose parts are uneven; give it `shape` and `stride`");
  const auto& strides = tensor.logical();
  return strides ? *strides : row_major(tensor.shape());
}

Tensor varies(const Tensor& tensor, const DeviceMesh& mesh, int dim, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(tensor.defined(), "varies: the tensor is undefined");
  CS_REQUIRE(mesh.defined() && dim >= 0 && dim < mesh.ndim(), "varies: dimension ", dim,
             " is out of range for mesh ", mesh);
  const std::uint64_t mark = mark_of(mesh, dim);
  CS_REQUIRE(!tensor.is_distributed() || (tensor.spec()->mesh_marks & mark) == 0,
             "varies: ", tensor, " has a layout along '",
             mesh.names()[static_cast<std::size_t>(dim)], "', which says how it differs by rank");
  add_marks(tensor, mark);
  if (tensor.requires_grad() && tensor.is_leaf()) tensor.grad_meta()->own_along |= mark;
  return tensor;
}

}  // namespace coshard
