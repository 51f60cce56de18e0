#include <coshard/dtensor/redistribute/transfer_to.h>

#include <coshard/dtensor/tape/tape.h>
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tensor/local.h"
#include "kernels/run.h"

namespace coshard {
namespace {

constexpr const char* kParcelLabel = "transfer";

// A message from one rank of the world to another, as each of them sees it.
struct Parcel {
  World& world;
  int from, to;
  CallSite where;

  bool sends() const { return world.rank() == from; }
  bool receives() const { return world.rank() == to; }
  Parcel back() const { return {world, to, from, where}; }
};

Collective collective_of_parcel(const Parcel& parcel, const Tensor& x) {
  Collective c;
  c.kind = parcel.sends() ? CollectiveKind::Send : CollectiveKind::Recv;
  c.dtype = x.dtype();
  c.root = parcel.sends() ? parcel.to : parcel.from;
  c.extent = x.local_numel();
  c.label = kParcelLabel;
  c.shape = shape_to_compare(x.local_shape());
  c.where = parcel.where;
  return c;
}

Work send_parcel(const Parcel& parcel, const Tensor& x) {
  const Tensor whole = x.is_contiguous() ? x : copy_later(x);
  Collective c = collective_of_parcel(parcel, whole);
  chain(c, whole);
  c.send = whole.address();
  c.keep_send = whole.storage()->buffer;
  Work sent = parcel.world.communicator()->issue(std::move(c), parcel.where);
  whole.read_by(sent);
  return sent;
}

// New memory, in flight.
Tensor receive_parcel(const Parcel& parcel, const Tensor& like) {
  const Tensor got = Tensor::empty(like.device(), like.local_shape(), like.dtype());
  Collective c = collective_of_parcel(parcel, got);
  c.recv = got.address();
  c.keep_recv = got.storage()->buffer;
  got.set_in_flight(parcel.world.communicator()->issue(std::move(c), parcel.where));
  return got;
}

// The work that still fills x, for ranks that neither send nor receive. As for the message itself,
// giving up the wait is not noted.
Work bystanders_flight(const Tensor& x) {
  if (!x.in_flight() || !x.storage()->pending) return Work();
  return Work(std::make_shared<FollowUp>(
      x.storage()->pending.state(), [] {}, GivenUp::Unnoted));
}

Tensor carry(const Parcel& parcel, const Tensor& x) {
  if (parcel.receives()) return receive_parcel(parcel, x);
  return same_in_flight(x, parcel.sends() ? send_parcel(parcel, x) : bystanders_flight(x));
}

// The adjoint: the gradient of `to` is sent back and added to that of `from`; `to` keeps zeros.
Tensor carry_back(const Parcel& parcel, const Tensor& gradient) {
  const Parcel back = parcel.back();
  if (back.sends()) {
    const Work sent = send_parcel(back, gradient);
    const Tensor none = Tensor::empty(gradient.device(), gradient.local_shape(), gradient.dtype());
    kernels::run(*none.device(),
                 kernels::Fill{none.address(), none.dtype(), none.local_numel(), 0});
    none.set_in_flight(Work(sent.state()));
    return none;
  }
  if (!back.receives()) return same_in_flight(gradient, bystanders_flight(gradient));
  const Tensor got = receive_parcel(back, gradient);
  const Tensor sum = Tensor::empty(got.device(), got.local_shape(), got.dtype());
  const Tensor place = Tensor::alias(sum, sum.local_shape(), sum.strides(), 0);
  make_from(got, sum, [place, gradient](const Tensor& term) {
    kernels::run(*place.device(), kernels::Binary{kernels::BinaryOp::Add, view_of(place),
                                                  view_of(gradient), view_of(term)});
  });
  if (sum.in_flight())
    gradient.read_by(sum.storage()->pending);
  else
    sum.set_in_flight(Work());
  return sum;
}

// The record of either direction; each is the gradient of the other.
class ParcelNode final : public GradNode {
 public:
  ParcelNode(const Parcel& parcel, bool adjoint) : parcel_(parcel), adjoint_(adjoint) {}
  std::string_view name() const override { return kParcelLabel; }
  bool records_backward() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    Tensor gradient =
        adjoint_ ? carry(parcel_, output_grads[0]) : carry_back(parcel_, output_grads[0]);
    if (taped(output_grads))
      push_record(std::make_shared<ParcelNode>(parcel_, !adjoint_), output_grads,
                  std::span<Tensor>(&gradient, 1));
    sink.accumulate(0, gradient);
  }

 private:
  Parcel parcel_;
  bool adjoint_;
};

World& world_of_parcel(const Tensor& x, int from, int to) {
  World* world = World::current();
  CS_REQUIRE(world != nullptr, "transfer: no world runs on this thread");
  CS_REQUIRE(x.defined(), "transfer: the tensor is undefined");
  CS_REQUIRE(!x.is_distributed(), "transfer: ", x,
             " is a DTensor; redistribute it to another mesh");
  for (const int rank : {from, to})
    CS_REQUIRE(rank >= 0 && rank < world->size(), "transfer: rank ", rank, " is out of range for ",
               world->size(), " ranks");
  return *world;
}

}  // namespace

Redistribution transfer(const Tensor& x, int from, int to, CallSite where) {
  const Parcel parcel{world_of_parcel(x, from, to), from, to, where};
  if (from == to) return Redistribution(x);
  issue_deferred(x);
  Tensor result = carry(parcel, x);
  const Tensor inputs[] = {x};
  if (taped(inputs))
    push_record(std::make_shared<ParcelNode>(parcel, false), inputs, std::span<Tensor>(&result, 1));
  return Redistribution(result);
}

}  // namespace coshard
