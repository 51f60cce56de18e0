// The methods of Tensor that need the tape.
#include <coshard/dtensor/tape/tape.h>
#include <coshard/dtensor/tensor/tensor.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/writes.h"
#include "dtensor/tape/origin.h"

namespace coshard {

bool Tensor::requires_grad() const {
  if (impl().copied_view) [[unlikely]] {
    if (impl().copied_view->is_behind()) return will_require_grad(*this);
    know_renewal(*this);
  }
  if (!is_current()) [[unlikely]]
    catch_up(*this);
  return impl().grad && impl().grad->requires_grad;
}
bool Tensor::is_leaf() const { return !requires_grad() || (impl().grad && !impl().grad->producer); }

void Tensor::set_base(const Tensor& viewed) const {
  impl().base = viewed.impl().base ? viewed.impl_->base : viewed.impl_;
  impl().copied_view = viewed.impl_->copied_view;
  impl().marks = 0;  // the base's count
  // Off the tape, it is a view of what the memory holds now.
  if (grad_enabled() || viewed.impl_->untaped_view) impl().known = viewed.impl_->known;
  impl().untaped_view = !grad_enabled() || viewed.impl_->untaped_view;
}

Tensor& Tensor::set_requires_grad(bool value) {
  CS_REQUIRE(is_leaf(), "set_requires_grad: ", *this, " was made by ",
             impl().grad ? impl().grad->producer->name()
                         : static_cast<const OperatorView&>(*impl().copied_view).op->name,
             "; only leaves can be changed");
  CS_REQUIRE(!value || is_floating(dtype()), "set_requires_grad: ", *this,
             " is none of f32, f64, bf16 and f16");
  CS_REQUIRE(!value || !copied_view(), "set_requires_grad: ", *this,
             " is a copy that a view operator made, and what is written to it is written into ",
             copied_view()->of, ", which steps of a leaf would not reach; use its clone()");
  if (!impl().grad) {
    impl().grad = std::make_shared<GradMeta>();
    impl().grad->own_along = marks();
  }
  impl().grad->requires_grad = value;
  impl().grad->spec = impl().spec;
  if (value) leave_base();  // a leaf is not a view of another tensor
  if (value && impl().origin == 0) numbered(*this, Numbered::Parameter);
  impl().grad->origin = impl().origin;
  return *this;
}

Tensor Tensor::grad() const {
  CS_REQUIRE(!impl().copied_view || !impl().copied_view->may_be_itself || impl().base,
             "grad: ", *this, " was made by contiguous() from ", impl().copied_view->of,
             ", which it is if strides allow it that from_local was not told; give it `stride`, or "
             "ask that");
  return impl().grad ? impl().grad->gradient : Tensor();
}

void Tensor::set_grad(Tensor gradient) const {
  CS_REQUIRE(!gradient.defined() || fits_as_gradient(gradient), "set_grad: gradient ", gradient,
             " does not match ", *this);
  if (!impl().grad) impl().grad = std::make_shared<GradMeta>();
  if (StepGraph* step = StepGraph::recording()) step->sets(impl().grad);
  if (!gradient.defined()) impl().grad->summed = false;
  impl().grad->terms = {};
  impl().grad->gradient = std::move(gradient);
}

Tensor Tensor::detach() const {
  Tensor out = with_spec(impl().spec);
  if (impl().copied_view) [[unlikely]]
    view_as_detached(*this, out);
  return out;
}

}  // namespace coshard
