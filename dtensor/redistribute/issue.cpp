#include "dtensor/redistribute/issue.h"

#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/tape/origin.h"
#include "dtensor/tensor/local.h"
#include "runtime/comm/collective.h"

namespace coshard {

Counts shape_to_compare(const Shape& shape) {
  return std::make_shared<const std::vector<std::int64_t>>(shape.begin(), shape.end());
}

Counts shapes_to_compare(std::span<const Tensor> list) {
  std::vector<std::int64_t> all;
  for (const Tensor& t : list) {
    if (!all.empty()) all.push_back(-1);
    all.insert(all.end(), t.shape().begin(), t.shape().end());
  }
  return std::make_shared<const std::vector<std::int64_t>>(std::move(all));
}

void issue_into(Communicator& communicator, Collective collective, const Tensor& from,
                const Tensor& to) {
  collective.dtype = from.dtype();
  chain(collective, from);
  collective.send = from.address();
  collective.recv = to.address();
  collective.keep_send = from.storage()->buffer;
  collective.keep_recv = to.storage()->buffer;
  to.set_in_flight(communicator.issue(std::move(collective)));
  if (from.storage()->buffer != to.storage()->buffer) from.read_by(to.storage()->pending);
}

void issue_through(Communicator& communicator, Collective collective, const Tensor& from,
                   const Tensor& into, const Tensor& to, std::function<void()> complete) {
  const bool queued = from.device()->kind() != DeviceKind::Cpu;
  if (!queued) collective.complete = complete;
  issue_into(communicator, std::move(collective), from, into);
  if (into.storage() == to.storage() && !(queued && complete)) return;
  std::shared_ptr<WorkState> received = into.storage()->pending.state();
  into.arrived(received);
  if (queued) received = std::make_shared<FollowUp>(std::move(received), std::move(complete));
  to.set_in_flight(Work(std::move(received)));
}

void issue_all_reduce(Communicator& communicator, Reduce reduce, const Tensor& terms, Told told) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.reduce = reduce;
  c.extent = terms.local_numel();
  c.label = told.label;
  c.order = told.order;
  c.origin = told.order != nullptr ? origin_of(told.order) : terms.origin();
  c.shape = std::move(told.shape);
  c.replicas = std::move(told.replicas);
  issue_into(communicator, c, terms, terms);
}

Tensor broadcast_along(const Tensor& whole, const DeviceMesh& mesh, int m, int source,
                       std::string_view label) {
  const Tensor from = local_contiguous(whole);
  const Tensor out = Tensor::empty(from.device(), from.local_shape(), from.dtype());
  Collective c;
  c.kind = CollectiveKind::Broadcast;
  c.root = source;
  c.shape = shape_to_compare(whole.local_shape());
  c.extent = from.local_numel();
  c.label = label;
  c.origin = whole.origin();
  issue_into(mesh.communicator(m), c, from, out);
  return out;
}

}  // namespace coshard
