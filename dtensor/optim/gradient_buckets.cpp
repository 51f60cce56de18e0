#include "dtensor/optim/gradient_buckets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <coshard/dtensor/distribute/factories.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/runtime/cost/link.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/distribute/replicas.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/output_place.h"
#include "dtensor/ops/overlap_gate.h"
#include "dtensor/optim/gradients.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tape/origin.h"
#include "kernels/run.h"

namespace coshard {
namespace {

// Bytes of the largest shard: the same on all ranks, so that all fill their buckets alike.
std::int64_t largest_bytes(const Tensor& parameter) {
  Shape shape = parameter.shape();
  for (int m = 0; parameter.is_distributed() && m < parameter.layout().ndim(); ++m) {
    const Placement& p = parameter.layout()[m];
    if (!p.is_sharded()) continue;
    auto& extent = shape[static_cast<std::size_t>(p.dim)];
    extent = (extent + parameter.mesh().size(m) - 1) / parameter.mesh().size(m);
  }
  return numel(shape) * static_cast<std::int64_t>(size_of(parameter.dtype()));
}

bool same_layout(const Tensor& a, const Tensor& b) {
  if (!a.is_distributed() || !b.is_distributed()) return a.is_distributed() == b.is_distributed();
  return a.mesh() == b.mesh() && a.layout() == b.layout();
}

bool is_summed(const Tensor& parameter) {
  return parameter.grad().defined() && parameter.grad_meta()->summed;
}

void mark_summed(const std::shared_ptr<GradMeta>& meta) {
  meta->summed = true;
  if (StepGraph* step = StepGraph::recording()) step->on_replay([meta] { meta->summed = true; });
}

}  // namespace

std::int64_t BucketSizes::limit(std::int64_t left, bool is_first) const {
  return is_first ? first : std::clamp(left / 2, first, other);
}

BucketSizes bucket_sizes(std::int64_t total, int ranks, const std::optional<Link>& link) {
  constexpr std::int64_t kLeast = 1 << 20, kPieces = 8, kSmall = 3;
  std::int64_t other = std::max(kLeast, total / kPieces);
  std::int64_t first = std::min(kLeast, other / 4);
  if (link) {
    const double bytes = 2.0 * (ranks - 1) / ranks * static_cast<double>(total);
    const auto latency_ns = std::max<std::int64_t>(1, link->latency_ns());
    const std::int64_t most = 1 + link->transfer_ns(bytes) / (50 * latency_ns);
    if (most <= kSmall + 1) {
      first = other = std::max(other, (total + most - 1) / most);
    } else {
      other = std::max(other, total / (most - kSmall));
      first = std::min(kLeast, other / 4);
    }
  }
  other = std::min(other, BucketSizes::kMost);
  return {std::min(first, other), other};
}

GradientBuckets::GradientBuckets(std::vector<Tensor> parameters, const DeviceMesh& mesh, int dim,
                                 const DataParallelOptions& options)
    : mesh_(mesh), dim_(dim), options_(options) {
  for (Tensor& p : parameters) slots_.push_back({std::move(p)});
}

void GradientBuckets::adopt_parameters() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    GradMeta& meta = *slots_[i].parameter.grad_meta();
    CS_REQUIRE(meta.collector.expired(), "DataParallel: parameter ", i, " (", slots_[i].parameter,
               ") belongs to another DataParallel");
    CS_REQUIRE(
        meta.owner == nullptr, "DataParallel: the gradient of parameter ", i, " (",
        slots_[i].parameter, ") is reduced by ", meta.owner->name,
        "; call all_reduce_gradients after backward to reduce it over another mesh dimension");
    meta.collector = weak_from_this();
    meta.collected_as = static_cast<int>(i);
  }
}

std::vector<std::int64_t> GradientBuckets::bytes() const {
  std::vector<std::int64_t> all;
  for (const Bucket& bucket : buckets_)
    all.push_back(bucket.memory.numel() *
                  static_cast<std::int64_t>(size_of(bucket.memory.dtype())));
  return all;
}

BucketSizes GradientBuckets::sizes_of(std::int64_t total) const {
  if (options_.bucket_bytes > 0) return {options_.bucket_bytes / 4, options_.bucket_bytes};
  if (options_.overlap != Overlap::Auto) return bucket_sizes(total, mesh_.size(dim_), {});
  return bucket_sizes(total, mesh_.size(dim_), known_link(mesh_, dim_));
}

// Fills buckets with the gradients in this order.
void GradientBuckets::fill(std::span<const int> order) {
  struct Open {
    std::vector<int> slots;
    std::int64_t bytes = 0;
    std::size_t last = 0;  // index of its last gradient in `order`
  };
  std::int64_t left = 0;
  for (const Slot& slot : slots_) left += largest_bytes(slot.parameter);
  const BucketSizes sizes = sizes_of(left);
  std::vector<Open> all;
  std::vector<std::pair<DType, Open>> open;
  const auto close = [&](Open& one) {
    left -= one.bytes;
    if (!one.slots.empty()) all.push_back(std::exchange(one, Open()));
  };
  for (std::size_t at = 0; at < order.size(); ++at) {
    const Tensor& p = slots_[static_cast<std::size_t>(order[at])].parameter;
    auto known = std::ranges::find(open, p.dtype(), [](const auto& one) { return one.first; });
    if (known == open.end()) known = open.insert(known, {p.dtype(), Open()});
    Open& one = known->second;
    const std::int64_t bytes = largest_bytes(p);
    if (one.bytes + bytes > BucketSizes::kMost) close(one);
    one.slots.push_back(order[at]);
    one.bytes += bytes;
    one.last = at;
    if (one.bytes >= sizes.limit(left, all.empty())) close(one);
  }
  for (auto& [dtype, one] : open) close(one);
  std::ranges::stable_sort(all, {}, &Open::last);
  for (Open& one : all) buckets_.push_back({Tensor(), std::move(one.slots)});
}

// The last parameters first, as backward usually completes them: not in the order of this rank's
// tape, since ranks may reach parameters in another order.
void GradientBuckets::build() {
  std::vector<int> order(slots_.size());
  std::iota(order.rbegin(), order.rend(), 0);
  const Tensor& first = slots_.front().parameter;
  require_not_recording(*first.device(), "DataParallel", "allocate the gradients");
  fill(order);
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    std::int64_t elements = 0;
    DType dtype = DType::F32;
    std::vector<Tensor> parameters;
    for (const int i : buckets_[b].slots) {
      Slot& slot = slots_[static_cast<std::size_t>(i)];
      dtype = slot.parameter.dtype();
      parameters.push_back(slot.parameter);
      slot.bucket = static_cast<int>(b);
      slot.offset = elements;
      elements = aligned(elements + slot.parameter.local_numel(), dtype);
    }
    buckets_[b].memory = zeros(first.device(), Shape{elements}, dtype);
    buckets_[b].order = order_to_compare(parameters);
    buckets_[b].shapes = shapes_to_compare(parameters);
  }
}

bool GradientBuckets::begin(std::span<const int> reached) {
  for (const Slot& slot : slots_)
    CS_REQUIRE(slot.parameter.is_leaf(), "DataParallel: ", slot.parameter,
               " was replaced in its module by ", slot.parameter.grad_meta()->producer->name(),
               "; create it afterwards");
  if (buckets_.empty()) build();
  if (!sync_) return false;
  CS_REQUIRE(!active_,
             "backward: another backward is still reducing gradients of the same "
             "DataParallel; set_requires_gradient_sync(false) for all but the last");
  if (!compared_ && mesh_.contains_this_rank()) {
    std::vector<Tensor> all;
    for (const Slot& slot : slots_) all.push_back(slot.parameter);
    replicas_ = replica_hashes(all, mesh_, dim_);
  }
  compared_ = true;
  active_ = true;
  sent_ = 0;
  for (Bucket& bucket : buckets_) bucket.open = 0;
  for (Slot& slot : slots_) slot.open = false;
  for (const int i : reached) {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    slot.open = true;
    ++buckets_[static_cast<std::size_t>(slot.bucket)].open;
  }
  return true;
}

Tensor GradientBuckets::view_of_slot(const Slot& slot, std::shared_ptr<const Spec> spec) const {
  const Shape& shape = slot.parameter.local_shape();
  const Tensor& memory = buckets_[static_cast<std::size_t>(slot.bucket)].memory;
  return memory.view_as(shape, row_major(shape), slot.offset, std::move(spec));
}

bool GradientBuckets::shares_memory(const Slot& slot, const Tensor& gradient) const {
  const Tensor& memory = buckets_[static_cast<std::size_t>(slot.bucket)].memory;
  return gradient.storage()->buffer == memory.storage()->buffer;
}

bool GradientBuckets::lies_in_place(const Slot& slot, const Tensor& gradient) const {
  return shares_memory(slot, gradient) && gradient.storage_offset() == slot.offset &&
         gradient.is_contiguous();
}

Tensor GradientBuckets::place(const GradMeta& leaf) {
  Slot& slot = slots_[static_cast<std::size_t>(leaf.collected_as)];
  if (slot.bucket < 0 || slot.taken || leaf.gradient.defined() || slot.parameter.local_numel() == 0)
    return {};
  Tensor place = view_of_slot(slot, nullptr);
  place.wait("backward");
  place.wait_for_readers("backward");
  slot.taken = true;
  return place;
}

// Puts `gradient` into its slot.
void GradientBuckets::put(const Slot& slot, Tensor gradient) const {
  const Tensor place = view_of_slot(slot, nullptr);
  place.wait("backward");
  place.wait_for_readers("backward");
  place.mark_written();
  if (lies_in_place(slot, gradient) || gradient.local_numel() == 0) return;
  if (shares_memory(slot, gradient)) gradient = copy_of(gradient);
  kernels::run(*place.device(), kernels::Copy{view_of(place), view_of(gradient.raw_local())});
}

void GradientBuckets::fill_with_zeros(const Slot& slot) const {
  const Tensor place = view_of_slot(slot, nullptr);
  place.wait("backward");
  place.wait_for_readers("backward");
  place.mark_written();
  kernels::run(*place.device(),
               kernels::Fill{place.address(), place.dtype(), place.local_numel(), 0});
}

// The first rank's gradient becomes the sum.
void GradientBuckets::leave_to_the_first(const Slot& slot) const {
  if (mesh_.contains_this_rank() && mesh_.local_rank(dim_) != 0) fill_with_zeros(slot);
}

void GradientBuckets::add(GradMeta& leaf, Tensor gradient) {
  Slot& slot = slots_[static_cast<std::size_t>(leaf.collected_as)];
  CS_REQUIRE(!grad_enabled(), "backward: create_graph, but the gradient of parameter ",
             leaf.collected_as,
             " of a DataParallel is kept in a bucket, off the tape; use grad() instead");
  CS_REQUIRE(
      !active_ || static_cast<std::size_t>(slot.bucket) >= sent_,
      "backward: a gradient of parameter ", leaf.collected_as,
      " of a DataParallel arrived after its bucket (", slot.bucket, " of ", buckets_.size(),
      ") had been sent: of another backward, or of a parameter that required none in forward");
  CS_REQUIRE(!is_summed(slot.parameter) || options_.reduce == Reduce::Avg,
             "backward: the gradient of parameter ", leaf.collected_as,
             " of a DataParallel is a sum over ranks already and would be counted again; zero_grad "
             "first, or set_requires_gradient_sync(false) for all backwards but the last");
  if (leaf.gradient.defined()) {
    const bool in_place =
        lies_in_place(slot, leaf.gradient) && same_layout(leaf.gradient, gradient);
    const OutputPlace place(in_place ? view_of_slot(slot, nullptr) : Tensor());
    gradient = coshard::add(leaf.gradient, gradient);
  } else if (slot.taken && !shares_memory(slot, gradient)) {
    leaf.gradient = copy_of(gradient);  // another backward may be writing to the slot
    leaf.summed = false;
    return;
  }
  put(slot, gradient);
  leaf.gradient = view_of_slot(slot, gradient.spec());
  leaf.gradient.set_marks(gradient.marks());
  leaf.summed = slot.taken = false;
}

void GradientBuckets::complete(int leaf) {
  Slot& slot = slots_[static_cast<std::size_t>(leaf)];
  if (!std::exchange(slot.open, false)) return;
  --buckets_[static_cast<std::size_t>(slot.bucket)].open;
  if (options_.overlap == Overlap::Off || options_.find_unused_parameters) return;
  while (sent_ < buckets_.size() && buckets_[sent_].open == 0) send(sent_++);
}

void GradientBuckets::end() {
  active_ = false;
  if (options_.find_unused_parameters) return send_unused_too();
  while (sent_ < buckets_.size()) send(sent_++);
  for (Slot& slot : slots_) slot.taken = false;
}

// Every rank sends every bucket, with zeros for the gradients that it does not have.
void GradientBuckets::send_unused_too() {
  const Tensor& first = slots_.front().parameter;
  std::vector<double> used;
  for (const Slot& slot : slots_) {
    const Tensor g = slot.parameter.grad();
    used.push_back(g.defined() ? 1 : 0);
    if (!g.defined()) fill_with_zeros(slot);
  }
  used_ = Tensor::from_values(first.device(), Shape{static_cast<std::int64_t>(used.size())},
                              DType::F64, used);
  used_.set_origin(used.size());  // the same on all ranks, from whatever line
  if (mesh_.contains_this_rank())
    issue_all_reduce(mesh_.communicator(dim_), Reduce::Max, used_, {"used parameters"});
  else
    used_.set_in_flight(Work());
  while (sent_ < buckets_.size()) send(sent_++);
}

// Once it is known which gradients some rank has: those are the sums on all of them.
void GradientBuckets::settle() {
  if (!used_.defined()) return;
  const std::vector<double> used = std::exchange(used_, Tensor()).to_vector();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.taken = false;
    if (used[i] == 0 || slot.parameter.grad().defined()) continue;
    slot.parameter.set_grad(view_of_slot(slot, nullptr));
    mark_summed(slot.parameter.grad_meta());
  }
}

// Whether there is anything to send. Peers must send and lack the same; the next collective
// compares.
bool GradientBuckets::note_what_leaves(std::size_t number) const {
  const Bucket& bucket = buckets_[number];
  if (options_.find_unused_parameters) return true;
  const bool any = std::ranges::any_of(bucket.slots, [this](int i) {
    const Tensor& p = slots_[static_cast<std::size_t>(i)].parameter;
    return p.grad().defined() && !is_summed(p);
  });
  if (!mesh_.contains_this_rank()) return any;
  mesh_.note(dim_, {any ? "sent gradient bucket" : "left out gradient bucket", "of", number,
                    buckets_.size()});
  for (const int i : bucket.slots) {
    const auto at = static_cast<std::size_t>(i);
    if (any && !slots_[at].parameter.grad().defined())
      mesh_.note(dim_, without_gradient("sent a bucket (find_unused_parameters permits that)",
                                        slots_[at].parameter, at, slots_.size()));
  }
  return any;
}

// The gradient's spec once it is summed: a Partial along the dimension becomes Replicate.
std::shared_ptr<const Spec> GradientBuckets::spec_after(const Slot& slot) const {
  const Tensor g = slot.parameter.grad();
  int summed = dim_of(g, mesh_, dim_);
  if (summed >= 0 && g.layout()[summed] != Placement(Partial(options_.reduce))) summed = -1;
  if (mesh_.contains_this_rank())
    check_replicas_along("DataParallel", g, static_cast<std::size_t>(&slot - slots_.data()), mesh_,
                         dim_, summed);
  if (summed < 0) return g.spec();
  Layout layout = g.layout();
  layout[summed] = Replicate();
  return make_spec(g.mesh(), layout, g.shape());
}

std::string GradientBuckets::name_of_slot(const Slot& slot) const {
  return name_of_parameter(slot.parameter, static_cast<std::size_t>(&slot - slots_.data()));
}

void GradientBuckets::send(std::size_t number) {
  Bucket& bucket = buckets_[number];
  if (!note_what_leaves(number)) return;
  std::vector<std::pair<const Slot*, std::shared_ptr<const Spec>>> sent;
  for (const int i : bucket.slots) {
    const Slot& slot = slots_[static_cast<std::size_t>(i)];
    const Tensor g = slot.parameter.grad();
    if (!g.defined()) continue;
    if (const StepGraph* step = StepGraph::recording())
      step->require_met(slot.parameter.grad_meta(), "a sum of gradients");
    CS_REQUIRE(!is_summed(slot.parameter), "backward: bucket ", number,
               " of a DataParallel holds new gradients and that of parameter ", i,
               ", which was summed before and would be again; zero_grad before each backward");
    sent.emplace_back(&slot, spec_after(slot));
    if (!lies_in_place(slot, g)) put(slot, g);
    if (options_.reduce == Reduce::Sum && is_whole_along(g, mesh_, dim_)) leave_to_the_first(slot);
  }
  if (mesh_.contains_this_rank())
    issue_all_reduce(mesh_.communicator(dim_), options_.reduce, bucket.memory,
                     {"gradients", bucket.order, bucket.shapes, std::exchange(replicas_, nullptr)});
  else  // in flight, as on the other ranks
    bucket.memory.set_in_flight(Work());
  for (const auto& [slot, spec] : sent) {
    const Tensor& p = slot->parameter;
    const Tensor summed = view_of_slot(*slot, spec);
    const auto name = [this, &slot = *slot] { return name_of_slot(slot); };
    summed.set_marks(
        marks_once_summed(*p.grad_meta(), p.grad().marks(), mesh_, dim_, options_.reduce, name));
    replace_grad(p, summed);
    mark_summed(p.grad_meta());
  }
}

}  // namespace coshard
