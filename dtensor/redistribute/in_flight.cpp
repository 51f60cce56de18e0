#include "dtensor/redistribute/in_flight.h"

#include "dtensor/redistribute/follow_up.h"
#include "dtensor/tensor/local.h"
#include "kernels/run.h"

namespace coshard {
namespace {

// Whether any thread may continue with data in flight once they have arrived.
bool continues(const Tensor& x) {
  issue_deferred(x);
  return x.in_flight() && x.device()->kind() == DeviceKind::Cpu &&
         (!x.storage()->pending || x.storage()->pending.state()->info().any_thread);
}

}  // namespace

Tensor place_of(const Tensor& x) {
  return Tensor::alias(x, x.local_shape(), x.strides(), x.storage_offset());
}

Tensor same_in_flight(const Tensor& x, Work work) {
  Tensor same = place_of(x);
  same.set_in_flight(std::move(work));
  return std::move(same).with_spec(x.spec());
}

void share_pending_work(const Tensor& from, const Tensor& to) {
  if (from.in_flight()) to.set_in_flight(Work(from.storage()->pending.state()));
}

void issue_deferred(const Tensor& x) {
  if (x.in_flight() && x.storage()->pending) x.storage()->pending.state()->note(WorkEvent::Needed);
}

void chain(Collective& collective, const Tensor& from) {
  if (continues(from))
    collective.after = from.storage()->pending.state();
  else
    from.wait();
}

void make_from(const Tensor& from, const Tensor& to, std::function<void(const Tensor& from)> make) {
  to.set_origin(from.origin());
  to.set_marks(from.marks());
  if (!continues(from)) {
    from.wait();
    return make(from);
  }
  to.set_in_flight(Work(std::make_shared<FollowUp>(
      from.storage()->pending.state(),
      [place = place_of(from), make = std::move(make)] { make(place); })));
  from.read_by(to.storage()->pending);
}

namespace {

// A converted copy in its own memory, in flight if `tensor` is.
Tensor converted(const Tensor& tensor, DType dtype) {
  Tensor to = Tensor::empty(tensor.device(), tensor.local_shape(), dtype);
  make_from(tensor, to, [place = place_of(to)](const Tensor& from) {
    kernels::run(*place.device(), kernels::Copy{view_of(place), view_of(from)});
  });
  return tensor.is_distributed() ? std::move(to).with_spec(tensor.spec()) : to;
}

}  // namespace

Tensor copy_later(const Tensor& tensor) { return converted(tensor, tensor.dtype()); }

Tensor cast_local(const Tensor& tensor, DType dtype) {
  return tensor.dtype() == dtype ? tensor : converted(tensor, dtype);
}

}  // namespace coshard
