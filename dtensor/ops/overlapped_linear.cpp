#include <array>
#include <utility>
#include <vector>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape.h>
#include "dtensor/ops/linear.h"
#include "dtensor/ops/linear_forecast.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/op_call.h"
#include "dtensor/redistribute/taped.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

using Counted = std::vector<std::int64_t>;

// The positions [first, first+count) of dimension `dim`; off the tape, waits for nothing.
Tensor part_of(const Tensor& x, int dim, const Chunk& part) {
  const auto d = static_cast<std::size_t>(dim);
  Shape shape = x.local_shape();
  shape[d] = part.size;
  return Tensor::alias(x, shape, x.strides(), x.storage_offset() + part.offset * x.strides()[d]);
}

std::int64_t numel_with(Shape shape, int dim, std::int64_t size) {
  shape[static_cast<std::size_t>(dim)] = size;
  return numel(shape);
}

// Tells observers of a part as of any product.
void compute(const OpCall& call, const Tensor& x, const Tensor& out) {
  if (out.local_numel() == 0) return;
  const OpContext context = call.context();
  World& world = *World::current();
  if (!world.observed()) return linear_rows(context, x, out);
  const Computing told(world.observer(), "linear", ComputeClass::Gemm,
                       [&] { return str_cat(x.dtype(), x.local_shape()); });
  linear_rows(context, x, out);
}

// A tensor for the tape alone: without memory for its elements.
Tensor without_data(const OpCall& call, const std::shared_ptr<Device>& device) {
  const Tensor one = Tensor::empty(device, Shape{1}, call.dtype());
  Strides none(call.local_shape().size(), 0);
  return one.view_as(call.local_shape(), none, 0, nullptr);
}

// The product of what an all_gather along `dim` still brings.
Task<Tensor> as_it_arrives(Tensor x, Tensor weight, Tensor bias, int dim) {
  OpCall call(linear_op(), {x, weight, bias});
  const int ranks = x.mesh().size(), own = call.absent() ? 0 : x.mesh().local_rank(0);
  const std::shared_ptr<WorkState> arriving = x.storage()->pending.state();
  const Tensor out = Tensor::empty(x.device(), call.local_shape(), call.dtype());
  for (int i = 0; i < ranks; ++i) {
    const int rank = (own + i) % ranks;
    WorkAwaiter shard(arriving, call.absent() ? -1 : rank);
    co_await shard;
    if (call.absent()) continue;
    const Chunk rows = chunk_of(x.size(dim), ranks, rank);
    compute(call, part_of(x, dim, rows), part_of(out, dim, rows));
  }
  WorkAwaiter all(arriving);
  co_await all;
  x.arrived(arriving);
  co_return call.record(out);
}

// A product whose rows are sent, as soon as they are computed, to the rank that adds them up.
class Scatter {
 public:
  Scatter(const OpCall& call, const DeviceMesh& mesh, int dim, int pieces)
      : call_(call),
        communicator_(mesh.communicator(0)),
        dim_(dim),
        pieces_(pieces),
        ranks_(mesh.size()),
        own_(mesh.local_rank(0)) {
    for (int p = 0; p < pieces; ++p)
      terms_.push_back(Tensor::empty(
          device(), Shape{ranks_, numel_with(call.local_shape(), dim, rows_of(own_, p).size)},
          call.dtype()));
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

  // Adds up what has come of a piece into its rows of `to`, in rank order.
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
  const std::shared_ptr<Device>& device() const { return call_.used()[0].device(); }
  int from(int step) const { return (own_ - step + ranks_) % ranks_; }
  // Of the product's rows, what `rank` gets with piece p.
  Chunk rows_of(int rank, int piece) const {
    const std::int64_t all = call_.local_shape()[static_cast<std::size_t>(dim_)];
    const Chunk shard = chunk_of(all, ranks_, rank);
    const Chunk part = chunk_of(shard.size, pieces_, piece);
    return {part.size, shard.offset + part.offset};
  }
  // Where the term of `rank` for this rank's piece is.
  Tensor slot(int rank, int piece) const {
    const Tensor& terms = terms_[static_cast<std::size_t>(piece)];
    Shape shape = call_.local_shape();
    shape[static_cast<std::size_t>(dim_)] = rows_of(own_, piece).size;
    return Tensor::alias(terms, shape, row_major(shape), rank * terms.local_shape()[1]);
  }

  void send(int piece, int to, int from) {
    const Chunk rows = rows_of(to, piece);
    Tensor block = to == own_ ? slot(own_, piece) : Tensor();
    if (to != own_) {
      Shape shape = call_.local_shape();
      shape[static_cast<std::size_t>(dim_)] = rows.size;
      block = Tensor::empty(device(), shape, call_.dtype());
    }
    compute(call_, part_of(call_.used()[0], dim_, rows), block);
    if (to == own_) return;
    const Tensor place = slot(from, piece);
    Counted sent(static_cast<std::size_t>(ranks_)), received(sent);
    sent[static_cast<std::size_t>(to)] = block.local_numel();
    received[static_cast<std::size_t>(from)] = place.local_numel();
    Collective c;
    c.kind = CollectiveKind::AllToAll;
    c.dtype = call_.dtype();
    c.label = "P->S, rows as they are computed";
    c.send = block.address(), c.recv = place.address();
    c.keep_send = block.storage()->buffer, c.keep_recv = place.storage()->buffer;
    c.send_counts = std::make_shared<const Counted>(std::move(sent));
    c.recv_counts = std::make_shared<const Counted>(std::move(received));
    works_[static_cast<std::size_t>(piece)].push_back(communicator_.issue(std::move(c)));
  }

  const OpCall& call_;
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

// The product with its sum scattered along `dim`.
Task<Tensor> scattered(Tensor x, Tensor weight, Tensor bias, int dim, int pieces) {
  OpCall call(linear_op(), {std::move(x), std::move(weight), std::move(bias)});
  const DeviceMesh& mesh = call.spec()->mesh;
  const std::shared_ptr<Device>& device = call.used()[0].device();
  const auto target = make_spec(mesh, Layout(Shard(dim)), call.spec()->shape);
  const Tensor to = Tensor::empty(device, target, call.dtype());
  std::optional<Scatter> scatter;
  if (!call.absent()) scatter.emplace(call, mesh, dim, pieces).run();
  for (int p = 0; p < pieces; ++p) {
    WorkAwaiter terms(scatter ? states_of(scatter->works(p)) : WorkStates());
    co_await terms;
    if (scatter) scatter->add_up(p, to.raw_local());
  }
  const Tensor product = call.record(without_data(call, device));
  co_return redistributed(product, to);
}

// The product all_reduced in pieces of its rows.
Task<Tensor> reduced(Tensor x, Tensor weight, Tensor bias, int pieces) {
  OpCall call(linear_op(), {std::move(x), std::move(weight), std::move(bias)});
  const DeviceMesh& mesh = call.spec()->mesh;
  const std::shared_ptr<Device>& device = call.used()[0].device();
  const auto target = make_spec(mesh, Layout(Replicate()), call.spec()->shape);
  const Tensor to = Tensor::empty(device, target, call.dtype());
  std::vector<Work> works;
  if (!call.absent()) {
    const Tensor rows = matrix_rows(call.used()[0]), out = matrix_rows(to.raw_local());
    for (int p = 0; p < pieces; ++p) {
      const Chunk part = chunk_of(out.size(0), pieces, p);
      const Tensor block = part_of(out, 0, part);
      compute(call, part_of(rows, 0, part), block);
      Collective c;
      c.kind = CollectiveKind::AllReduce;
      c.dtype = call.dtype();
      c.extent = block.local_numel();
      c.label = "P->R, rows as they are computed";
      c.send = c.recv = block.address();
      c.keep_send = c.keep_recv = block.storage()->buffer;
      works.push_back(mesh.communicator(0).issue(std::move(c)));
    }
  }
  WorkAwaiter all(states_of(works));
  co_await all;
  const Tensor product = call.record(without_data(call, device));
  co_return redistributed(product, to);
}

// What a product is made of: its rows are dimension `dim` of x.
OverlapCase case_of(const Tensor& x, const Tensor& weight, int dim, const LinkCost& link,
                    ScheduleKind kind) {
  std::int64_t batch = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d)
    if (d != dim) batch *= x.size(d);
  const int ranks = x.mesh().size();
  LinearShape shape;
  shape.ranks = ranks;
  shape.rows = kind == ScheduleKind::Reduce  // whose pieces are cut from all rows
                   ? chunk_of(x.size(dim) * batch, ranks, 0).size
                   : chunk_of(x.size(dim), ranks, 0).size * batch;
  shape.in = weight.size(1), shape.out = weight.size(0);
  const Placement cut = weight.layout()[0];
  shape.cut = cut.is_shard(0) ? 0 : cut.is_shard(1) ? 1 : -1;
  shape.dtype = x.dtype();
  return overlap_case(shape, kind, gemm_model(x.mesh(), x.dtype()), link);
}

void note_schedule(const Tensor& x, ScheduleKind kind, int pieces) {
  if (x.mesh().contains_this_rank()) note_schedule(x.mesh().communicator(0), kind, pieces);
}

// With `always`, a link that is not known counts as one that is worth it.
std::optional<LinkCost> link_of(const Tensor& x, Overlap overlap) {
  if (overlap == Overlap::Off || x.mesh().ndim() != 1 || x.mesh().size() < 2) return std::nullopt;
  const std::optional<LinkCost> link = known_link(x.mesh(), 0);
  return link || overlap == Overlap::Auto ? link : LinkCost();
}

// The dimension whose shards arrive one by one, if the product can use them.
std::optional<int> arriving_dim(const Tensor& x, const Tensor& weight, Overlap overlap) {
  const std::shared_ptr<const Gathered>& gathered = x.storage()->gathered;
  if (!arrives_by_shards(x) || gathered->spec != x.spec()) return std::nullopt;
  if (gathered->dim + 1 >= x.ndim() || !weight.is_distributed()) return std::nullopt;
  if (x.storage_offset() != 0 || (x.mesh().contains_this_rank() && !x.is_contiguous()))
    return std::nullopt;
  const Layout& cut = weight.layout();
  if (!(cut[0].is_shard(0) || cut[0].is_replicate())) return std::nullopt;
  const std::optional<LinkCost> link = link_of(x, overlap);
  if (!link) return std::nullopt;
  const OverlapCase c = case_of(x, weight, gathered->dim, *link, ScheduleKind::Gather);
  if (!gather_schedule(c, overlap)) return std::nullopt;
  return gathered->dim;
}

struct Sent {
  Layout target;
  int dim, pieces;  // dim -1: all_reduced
};

// The target as a layout, and the schedule for the sum of the product, if there is one.
std::optional<Sent> sum_schedule(const Tensor& x, const Tensor& weight, Placement target,
                                 Overlap overlap) {
  if (!x.is_distributed() || !weight.is_distributed() || x.ndim() < 2) return std::nullopt;
  const std::optional<LinkCost> link = link_of(x, overlap);
  if (!link || !x.layout()[0].is_shard(x.ndim() - 1) || !weight.layout()[0].is_shard(1))
    return std::nullopt;
  Shape shape = x.shape();
  shape.back() = weight.size(0);
  const Layout to = normalize(Layout(target), shape, "redistribute");
  if (to[0].is_replicate()) {
    const Schedule s = reduce_schedule(case_of(x, weight, 0, *link, ScheduleKind::Reduce), overlap);
    return s ? std::optional(Sent{to, -1, s.pieces}) : std::nullopt;
  }
  for (int dim = 0; dim + 1 < x.ndim(); ++dim) {
    if (!to[0].is_shard(dim)) continue;
    const Schedule s =
        scatter_schedule(case_of(x, weight, dim, *link, ScheduleKind::Scatter), overlap);
    return s ? std::optional(Sent{to, dim, s.pieces}) : std::nullopt;
  }
  return std::nullopt;
}

Tensor brought_to(const Tensor& y, const std::optional<Placement>& target) {
  return target ? redistribute(y, Layout(*target)).tensor() : y;
}

}  // namespace

Task<Tensor> overlapped_linear(Tensor x, Tensor weight, Tensor bias,
                               std::optional<Placement> target, Overlap overlap, CallSite site) {
  const UserCall user(site);
  if (x.defined() && x.is_distributed()) {
    if (const std::optional<int> dim = arriving_dim(x, weight, overlap)) {
      note_schedule(x, ScheduleKind::Gather, 1);
      Task<Tensor> product = as_it_arrives(x, weight, bias, *dim);
      Tensor y = co_await std::move(product);
      co_return brought_to(y, target);
    }
    if (x.in_flight()) {
      Task<void> arrived = arrival_of(Tensors(x));
      co_await std::move(arrived);
    }
    const auto sent = target ? sum_schedule(x, weight, *target, overlap) : std::nullopt;
    if (sent) {
      note_schedule(x, sent->dim < 0 ? ScheduleKind::Reduce : ScheduleKind::Scatter, sent->pieces);
      Task<Tensor> product = sent->dim < 0 ? reduced(x, weight, bias, sent->pieces)
                                           : scattered(x, weight, bias, sent->dim, sent->pieces);
      co_return co_await std::move(product);
    }
  }
  Tensor y = linear(x, weight, bias);
  co_return brought_to(y, target);
}

std::string_view to_string(Overlap overlap) {
  switch (overlap) {
    case Overlap::Off: return "off";
    case Overlap::Auto: return "auto";
    case Overlap::Always: return "always";
  }
  return "?";
}
std::ostream& operator<<(std::ostream& out, Overlap overlap) { return out << to_string(overlap); }

Overlap parse_overlap(std::string_view text) {
  for (const Overlap each : {Overlap::Off, Overlap::Auto, Overlap::Always})
    if (text == to_string(each)) return each;
  fail(ErrorKind::BadInput, str_cat("overlap: expected off, auto or always, got '", text, "'"));
}

}  // namespace coshard
