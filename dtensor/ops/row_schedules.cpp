#include "dtensor/ops/row_schedules.h"

#include <optional>
#include <utility>

#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/overlap_gate.h"
#include "dtensor/redistribute/deferred.h"

namespace coshard {
namespace {

using Counted = std::vector<std::int64_t>;

std::int64_t numel_with(Shape shape, int dim, std::int64_t size) {
  shape[static_cast<std::size_t>(dim)] = size;
  return numel(shape);
}

// A matmul whose rows are sent, as soon as they are computed, to the rank that sums them.
class Scatter {
 public:
  Scatter(const RowProduct& product, int dim, int pieces)
      : product_(product),
        communicator_(product.mesh().communicator(0)),
        dim_(dim),
        pieces_(pieces),
        ranks_(product.mesh().size()),
        own_(product.mesh().local_rank(0)) {
    for (int p = 0; p < pieces; ++p)
      terms_.push_back(Tensor::empty(
          product.device(),
          Shape{ranks_, numel_with(product.local_shape(), dim, rows_of(own_, p).size)},
          product.dtype()));
    works_.resize(static_cast<std::size_t>(pieces));
  }

  // Peer rank+1 first, this rank last: in every step each rank sends to one and receives from one.
  void run() {
    for (int step = 1; step <= ranks_; ++step)
      for (int p = 0; p < pieces_; ++p) send(p, (own_ + step) % ranks_, from(step));
  }
  const std::vector<Work>& works(int piece) const {
    return works_[static_cast<std::size_t>(piece)];
  }

  // Sums the received terms of a piece into its rows of `to`, in rank order.
  void add_up(int piece, const Tensor& to) const {
    const Chunk whole = rows_of(own_, piece);
    if (whole.size == 0) return;
    const NoGradGuard no_grad;
    const Chunk rows{whole.size, whole.offset - rows_of(own_, 0).offset};
    const Tensor into = part_of(to, dim_, rows);
    const Tensor total = sum(terms_[static_cast<std::size_t>(piece)], Dims{0});
    kernels::run(*to.device(),
                 kernels::Copy{view_of(into), view_of(total.view_as(
                                                  into.local_shape(), row_major(into.local_shape()),
                                                  total.storage_offset(), nullptr))});
  }

 private:
  int from(int step) const { return (own_ - step + ranks_) % ranks_; }
  // The product's rows that `rank` receives with this piece.
  Chunk rows_of(int rank, int piece) const {
    const std::int64_t all = product_.local_shape()[static_cast<std::size_t>(dim_)];
    const Chunk shard = chunk_of(all, ranks_, rank);
    const Chunk part = chunk_of(shard.size, pieces_, piece);
    return {part.size, shard.offset + part.offset};
  }
  // The buffer for the term of `rank` in this rank's piece.
  Tensor slot(int rank, int piece) const {
    const Tensor& terms = terms_[static_cast<std::size_t>(piece)];
    Shape shape = product_.local_shape();
    shape[static_cast<std::size_t>(dim_)] = rows_of(own_, piece).size;
    return Tensor::alias(terms, shape, row_major(shape), rank * terms.local_shape()[1]);
  }

  void send(int piece, int to, int from) {
    const Chunk rows = rows_of(to, piece);
    Tensor block = to == own_ ? slot(own_, piece) : Tensor();
    if (to != own_) {
      Shape shape = product_.local_shape();
      shape[static_cast<std::size_t>(dim_)] = rows.size;
      block = Tensor::empty(product_.device(), shape, product_.dtype());
    }
    product_.compute(dim_, rows, block);
    if (to == own_) return;
    const Tensor place = slot(from, piece);
    Counted sent(static_cast<std::size_t>(ranks_)), received(sent);
    sent[static_cast<std::size_t>(to)] = block.local_numel();
    received[static_cast<std::size_t>(from)] = place.local_numel();
    Collective c;
    c.kind = CollectiveKind::AllToAll;
    c.dtype = product_.dtype();
    c.label = "P->S by rows";
    c.origin = product_.origin();
    c.send = block.address(), c.recv = place.address();
    c.keep_send = block.storage()->buffer, c.keep_recv = place.storage()->buffer;
    c.send_counts = std::make_shared<const Counted>(std::move(sent));
    c.recv_counts = std::make_shared<const Counted>(std::move(received));
    works_[static_cast<std::size_t>(piece)].push_back(communicator_.issue(std::move(c)));
  }

  const RowProduct& product_;
  Communicator& communicator_;
  int dim_, pieces_, ranks_, own_;
  std::vector<Tensor> terms_;             // per piece: [rank, elements]
  std::vector<std::vector<Work>> works_;  // per piece
};

WorkStates states_of(const std::vector<Work>& works) {
  WorkStates states;
  for (const Work& work : works) states.push_back(work.state());
  return states;
}

Work issue_sum(Communicator& communicator, const Tensor& block, std::uint64_t origin) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.dtype = block.dtype();
  c.extent = block.local_numel();
  c.label = "P->R by rows";
  c.origin = origin;
  c.send = c.recv = block.address();
  c.keep_send = c.keep_recv = block.storage()->buffer;
  return communicator.issue(std::move(c));
}

void note(const RowProduct& product, ScheduleKind kind, int pieces) {
  if (!product.absent()) note_schedule(product.mesh().communicator(0), kind, pieces);
}

// Memory for the sum, in its final layout.
Tensor room_for(const RowProduct& product, Placement placement) {
  const auto spec = make_spec(product.mesh(), Layout(placement), product.spec()->shape);
  Tensor room = Tensor::empty(product.device(), spec, product.dtype());
  room.set_origin(product.origin());
  room.set_marks(product.marks());
  return room;
}

Task<Tensor> scattered(const RowProduct& product, int dim, int pieces, Meanwhile meanwhile) {
  const Tensor to = room_for(product, Shard(dim));
  note(product, ScheduleKind::Scatter, pieces);
  std::optional<Scatter> scatter;
  if (!product.absent()) scatter.emplace(product, dim, pieces).run();
  if (meanwhile) meanwhile();
  for (int p = 0; p < pieces; ++p) {
    WorkAwaiter terms(scatter ? states_of(scatter->works(p)) : WorkStates());
    co_await terms;
    if (scatter) scatter->add_up(p, to.raw_local());
  }
  co_return to;
}

Task<Tensor> reduced(RowProduct& product, int pieces, Meanwhile meanwhile) {
  const Tensor to = room_for(product, Replicate());
  note(product, ScheduleKind::Reduce, pieces);
  std::vector<Work> works;
  if (!product.absent()) {
    product.flatten();
    const Tensor out = matrix_rows(to.raw_local());
    for (int p = 0; p < pieces; ++p) {
      const Chunk rows = chunk_of(out.size(0), pieces, p);
      const Tensor block = part_of(out, 0, rows);
      product.compute(0, rows, block);
      works.push_back(issue_sum(product.mesh().communicator(0), block, product.origin()));
    }
  }
  if (meanwhile) meanwhile();
  WorkAwaiter all(states_of(works));
  co_await all;
  co_return to;
}

}  // namespace

Task<Tensor> rows_as_they_arrive(RowProduct& product, int dim, Meanwhile meanwhile) {
  const Tensor& x = product.x();
  const std::shared_ptr<WorkState> whole = x.storage()->pending.state();
  const int ranks = product.mesh().size();
  const int own = product.absent() ? 0 : product.mesh().local_rank(0);
  const Tensor source = source_in_flight(x);
  note(product, ScheduleKind::Gather, 1);
  const std::shared_ptr<WorkState> arriving = source.storage()->pending.state();
  product.read_from(source);
  const Tensor out = Tensor::empty(product.device(), product.spec(), product.dtype());
  for (int i = 0; i < ranks; ++i) {
    const int rank = (own + i) % ranks;
    WorkAwaiter shard(arriving, product.absent() ? -1 : rank);
    co_await shard;
    if (!product.absent()) {
      const Chunk rows = chunk_of(x.size(dim), ranks, rank);
      product.compute(dim, rows, part_of(out, dim, rows));
    }
    if (i == 0 && meanwhile) meanwhile();
  }
  WorkAwaiter all(whole);
  co_await all;
  x.arrived(whole);
  co_return out;
}

Task<Tensor> rows_summed(RowProduct& product, int dim, int pieces, Meanwhile meanwhile) {
  if (dim < 0) return reduced(product, pieces, std::move(meanwhile));
  return scattered(product, dim, pieces, std::move(meanwhile));
}

}  // namespace coshard
