#include "styles/shard_group.h"

#include <algorithm>
#include <utility>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/output_place.h"
#include "dtensor/redistribute/deferred.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "kernels/run.h"
#include "runtime/device/graph.h"

namespace coshard {
namespace {

// Each at an address that fits every kernel.
std::int64_t aligned(std::int64_t elements, DType dtype) {
  const auto step = static_cast<std::int64_t>(64 / size_of(dtype));
  return (elements + step - 1) / step * step;
}

Tensor part_of(const Tensor& memory, const Shape& shape, std::int64_t begin,
               std::shared_ptr<const Spec> spec = nullptr) {
  return memory.view_as(shape, row_major(shape), begin, std::move(spec));
}

void copy(const Tensor& to, const Tensor& from) {
  if (to.local_numel() > 0)
    kernels::run(*to.device(), kernels::Copy{view_of(to), view_of(from.raw_local())});
}

// The layout of this rank's part of a gradient: that of the shard, but sums over other dimensions
// of its mesh are left to the optimizer.
std::shared_ptr<const Spec> spec_of_part(const ShardedParameter& p, const DeviceMesh& mesh) {
  const Tensor gradient = p.whole.grad();
  if (!gradient.is_distributed()) return p.shard.spec();
  Layout layout = p.shard.layout();
  const int cutting = p.shard.mesh().dim(mesh.names()[0]);
  for (int m = 0, other = 0; m < layout.ndim(); ++m) {
    if (m == cutting) continue;
    const Placement& placement = gradient.layout()[other++];
    if (placement.is_partial()) layout[m] = placement;
  }
  return make_spec(p.shard.mesh(), layout, p.shard.shape());
}

}  // namespace

// A forward under way.
class ShardGroup::Use {
 public:
  // `again`: backward runs it once more (recompute.h).
  Use(std::shared_ptr<ShardGroup> group, bool again) : group_(std::move(group)), again_(again) {
    if (group_->uses_++ == 0) group_->put_in_slots(true);
    if (!again_) group_->schedule_->begin_forward(group_);
  }
  ~Use() {
    if (--group_->uses_ == 0) {
      group_->put_in_slots(false);
      if (group_->reshards() && !again_) group_->release();
    }
    if (!again_) group_->schedule_->end_forward();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::shared_ptr<ShardGroup> group_;
  bool again_;
};

// What freed parameters wait for: whoever reads them gathers them again.
class ShardGroup::WhenRead final : public IssuedLater {
 public:
  explicit WhenRead(std::weak_ptr<ShardGroup> group) : group_(std::move(group)) {}
  std::string describe() const override { return "parameters that fully_shard has freed"; }

 private:
  std::shared_ptr<WorkState> issue() override {
    const std::shared_ptr<ShardGroup> group = group_.lock();
    CS_REQUIRE(group, "fully_shard: parameters are read whose module is gone");
    group->gather();
    return group->memory_.storage()->pending.state();
  }
  std::weak_ptr<ShardGroup> group_;
};

ShardGroup::ShardGroup(Module& module, std::vector<ShardedParameter> parameters,
                       const DeviceMesh& mesh, const FullyShardOptions& options)
    : module_(module), parameters_(std::move(parameters)), mesh_(mesh), options_(options) {
  if (!parameters_.empty()) lay_out();
}

void ShardGroup::lay_out() {
  const Tensor& first = parameters_.front().shard;
  const int ranks = mesh_.size();
  for (ShardedParameter& p : parameters_) {
    p.begin = size_;
    size_ = aligned(size_ + numel(p.shape), first.dtype());
  }
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t before = total_;
    for (ShardedParameter& p : parameters_) {
      if (rank == mesh_.local_rank()) p.shard_begin = total_ - before;
      const Chunk rows = chunk_of(p.shape[0], ranks, rank);
      const std::int64_t row = p.shape[0] == 0 ? 0 : numel(p.shape) / p.shape[0];
      if (rows.size * row == 0) continue;
      blocks_.push_back(
          {Shape{rows.size * row}, Shape{p.begin + rows.offset * row}, total_, Strides{1}});
      total_ += rows.size * row;
    }
    counts.push_back(total_ - before);
  }
  counts_ = std::make_shared<const std::vector<std::int64_t>>(std::move(counts));
  memory_ = Tensor::empty(first.device(), Shape{0}, first.dtype());
  memory_ = part_of(memory_, Shape{size_}, 0);
  none_ = memory_.storage()->buffer;
  for (ShardedParameter& p : parameters_) {
    p.whole = part_of(memory_, p.shape, p.begin, p.spec);
    p.whole.set_unwritable("is gathered by fully_shard for this forward");
  }
}

void ShardGroup::adopt_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ShardedParameter& p = parameters_[i];
    p.whole.set_requires_grad(p.shard.requires_grad());
    p.whole.grad_meta()->collector = weak_from_this();
    p.whole.grad_meta()->collected_as = static_cast<int>(i);
  }
  release();
}

// --- the parameters ---

std::shared_ptr<void> ShardGroup::enter(std::vector<Tensor>& arriving) {
  const bool again = redistributes_are_deferred();
  std::vector<Tensor> shards;
  for (ShardedParameter& p : parameters_) {
    shards.push_back(p.shard);
    p.whole.set_requires_grad(p.shard.requires_grad());
  }
  static_cast<void>(taped(shards));  // recomputation finds out whether they change
  gather();
  auto use = std::make_shared<Use>(shared_from_this(), again);
  if (options_.overlap != Overlap::Off)
    again ? schedule_->gather_previous(*this) : schedule_->gather_next(*this);
  if (memory_.defined() && memory_.in_flight()) arriving.push_back(memory_);
  if (again) await_reductions(arriving);
  if (!again) done_ = false;
  return use;
}

std::vector<Tensor> ShardGroup::before_backward() {
  gather();
  std::vector<Tensor> awaited;
  if (memory_.defined() && memory_.in_flight()) awaited.push_back(memory_);
  list_gradients(awaited);  // to which those of this backward are added
  await_reductions(awaited);
  if (options_.overlap != Overlap::Off) schedule_->gather_previous(*this);
  return awaited;
}

void ShardGroup::list_gradients(std::vector<Tensor>& awaited) const {
  for (const ShardedParameter& p : parameters_)
    if (const Tensor g = p.shard.grad(); g.defined() && g.in_flight()) awaited.push_back(g);
}

// So that nothing of backward runs under them.
void ShardGroup::await_reductions(std::vector<Tensor>& awaited) const {
  if (options_.overlap != Overlap::Off) return;
  for (const auto& each : schedule_->all())
    if (const auto group = each.lock()) group->list_gradients(awaited);
}

void ShardGroup::put_in_slots(bool whole) {
  for (const ShardedParameter& p : parameters_)
    for (Tensor* slot : p.slots) *slot = whole ? p.whole : p.shard;
}

bool ShardGroup::changed() const {
  for (std::size_t i = 0; i < gathered_at_.size(); ++i)
    if (parameters_[i].shard.storage()->changes() != gathered_at_[i]) return true;
  return false;
}

Tensor ShardGroup::packed_shards() const {
  const auto rank = static_cast<std::size_t>(mesh_.local_rank());
  const Tensor packed = Tensor::empty(memory_.device(), Shape{(*counts_)[rank]}, memory_.dtype());
  for (const ShardedParameter& p : parameters_)
    copy(part_of(packed, p.shard.local_shape(), p.shard_begin), p.shard);
  return packed;
}

void ShardGroup::gather() {
  if (parameters_.empty() || (gathered_ && (uses_ > 0 || !changed()))) return;
  require_not_recording(*memory_.device(), "fully_shard", "allocate parameters");
  const Tensor packed = packed_shards();
  Storage& storage = *memory_.storage();
  auto buffer =
      memory_.device()->make_buffer(static_cast<std::size_t>(size_) * size_of(memory_.dtype()));
  buffer->writes =
      storage.changes() + (changed() ? 1 : 0);  // backward refuses what it saved before
  buffer->taped_write = storage.buffer->taped_write;
  storage.buffer = std::move(buffer);
  storage.in_flight = false;
  storage.pending = Work();
  gathered_ = true;
  gathered_at_.clear();
  for (const ShardedParameter& p : parameters_)
    gathered_at_.push_back(p.shard.storage()->changes());
  const Tensor received = Tensor::empty(memory_.device(), Shape{total_}, memory_.dtype());
  Collective c;
  c.kind = CollectiveKind::AllGather;
  c.extent = total_;
  c.counts = counts_;
  c.label = "parameters";
  issue_through(mesh_.communicator(0), std::move(c), packed, received, memory_,
                [from = place_of(received), to = place_of(memory_), blocks = blocks_] {
                  copy_in(from, to, blocks);
                });
}

void ShardGroup::release() {
  if (parameters_.empty()) return;
  Storage& storage = *memory_.storage();
  none_->writes = storage.changes();
  none_->taped_write = storage.buffer->taped_write;
  storage.buffer = none_;
  gathered_ = false;
  memory_.set_in_flight(Work(std::make_shared<WhenRead>(weak_from_this())));
}

// --- the gradients ---

bool ShardGroup::begin(std::span<const int> reached) {
  CS_REQUIRE(!active_, "backward: another one, which has not ended, reduces gradients of '",
             parameters_.front().name, "', which fully_shard has sharded");
  active_ = true;
  done_ = false;
  open_ = static_cast<int>(reached.size());
  for (const int i : reached) parameters_[static_cast<std::size_t>(i)].open = true;
  return true;
}

Tensor ShardGroup::gradient_view(const ShardedParameter& parameter) const {
  return part_of(gradients_, parameter.shape, parameter.begin);
}

Tensor ShardGroup::place(const GradMeta& leaf) {
  ShardedParameter& p = parameters_[static_cast<std::size_t>(leaf.collected_as)];
  if (p.taken || leaf.gradient.defined()) return {};
  if (!gradients_.defined())
    gradients_ = Tensor::empty(memory_.device(), Shape{size_}, memory_.dtype());
  p.taken = true;
  return gradient_view(p);
}

bool ShardGroup::lies_in_place(const ShardedParameter& parameter, const Tensor& gradient) const {
  return gradient.storage()->buffer == gradients_.storage()->buffer &&
         gradient.storage_offset() == parameter.begin && gradient.is_contiguous();
}

void ShardGroup::add(GradMeta& leaf, Tensor gradient) {
  ShardedParameter& p = parameters_[static_cast<std::size_t>(leaf.collected_as)];
  CS_REQUIRE(!grad_enabled(), "backward: create_graph, but the gradient of '", p.name,
             "', which fully_shard has sharded, is sent off the tape");
  if (!gradients_.defined())
    gradients_ = Tensor::empty(memory_.device(), Shape{size_}, memory_.dtype());
  const Tensor place = gradient_view(p);
  if (leaf.gradient.defined()) {
    const OutputPlace output(place);
    gradient = coshard::add(leaf.gradient, gradient);
  }
  if (!lies_in_place(p, gradient)) copy(place, gradient);
  leaf.gradient = place.with_spec(gradient.spec());
  p.taken = true;
}

void ShardGroup::complete(int leaf) {
  if (!std::exchange(parameters_[static_cast<std::size_t>(leaf)].open, false)) return;
  if (--open_ > 0) return;
  reduce();
  done_ = true;
  if (uses_ == 0) release();
}

void ShardGroup::end() {
  active_ = false;
  for (ShardedParameter& p : parameters_) p.open = p.taken = false;
  gradients_ = Tensor();
  schedule_->end_backward();
}

void ShardGroup::give_up() noexcept {
  active_ = false;
  gradients_ = Tensor();
  for (ShardedParameter& p : parameters_) {
    p.open = p.taken = false;
    p.whole.grad_meta()->gradient = Tensor();
  }
}

// Peers must send and miss the same: the next collective compares.
void ShardGroup::note_gradients() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!parameters_[i].whole.grad().defined())
      mesh_.note(0, {"reduced a group of shards with no gradient for parameter", "of", i,
                     parameters_.size()});
}

Tensor ShardGroup::scattered() const {
  const Tensor packed = Tensor::empty(memory_.device(), Shape{total_}, memory_.dtype());
  copy_out(gradients_, packed, blocks_);
  const auto rank = static_cast<std::size_t>(mesh_.local_rank());
  const Tensor mine = Tensor::empty(memory_.device(), Shape{(*counts_)[rank]}, memory_.dtype());
  Collective c;
  c.kind = CollectiveKind::ReduceScatter;
  c.reduce = options_.reduce;
  c.extent = total_;
  c.counts = counts_;
  c.label = "gradients";
  issue_into(mesh_.communicator(0), std::move(c), packed, mine);
  return mine;
}

void ShardGroup::reduce() {
  note_gradients();
  std::vector<Part> parts;
  for (ShardedParameter& p : parameters_) {
    if (p.whole.grad().defined()) {
      parts.push_back({&p, spec_of_part(p, mesh_)});
    } else if (gradients_.defined() && numel(p.shape) > 0) {
      const Tensor missing = gradient_view(p);
      kernels::run(*missing.device(),
                   kernels::Fill{missing.data(), missing.dtype(), missing.local_numel(), 0});
    }
    p.whole.grad_meta()->gradient = Tensor();
  }
  if (parts.empty()) return;
  const Tensor mine = scattered();
  gradients_ = Tensor();
  add_earlier(parts, mine);
  for (const Part& part : parts) {
    const Tensor& shard = part.parameter->shard;
    shard.set_grad(part_of(mine, shard.local_shape(), part.parameter->shard_begin, part.spec));
    tell(*part.parameter);
  }
}

// To each part, once it has arrived, the gradient that there was before this backward.
void ShardGroup::add_earlier(const std::vector<Part>& parts, const Tensor& mine) {
  std::vector<std::pair<Tensor, Tensor>> sums;  // a part's place, and what was there before
  for (const auto& [parameter, spec] : parts) {
    const Tensor before = parameter->shard.grad();
    if (!before.defined()) continue;
    CS_REQUIRE(before.layout() == spec->layout, "backward: the gradient of '", parameter->name,
               "' is ", before, ", to which one in ", spec->layout,
               " cannot be added; call zero_grad, or reduce_gradients after each backward");
    if (before.local_numel() == 0) continue;
    before.wait("backward");
    sums.emplace_back(part_of(place_of(mine), before.local_shape(), parameter->shard_begin),
                      before.raw_local());
  }
  if (sums.empty()) return;
  make_from(mine, mine, [sums = std::move(sums)](const Tensor&) {
    for (const auto& [place, before] : sums)
      kernels::run(*place.device(), kernels::Binary{kernels::BinaryOp::Add, view_of(place),
                                                    view_of(place), view_of(before)});
  });
}

// The hooks of a parameter whose gradient has left.
void ShardGroup::tell(const ShardedParameter& parameter) {
  for (const auto& hook : GradHooks(parameter.shard.grad_meta()->hooks)) {
    CS_REQUIRE(!hook->replace || !*hook->replace, "backward: a hook (register_hook) of '",
               parameter.name,
               "', which fully_shard has sharded, cannot replace a gradient that is in flight; use "
               "register_post_accumulate_grad_hook");
    if (const auto accumulated = hook->accumulated) (*accumulated)();
  }
}

Tensor lasting(const Tensor& x) {
  if (!x.defined() || !x.grad_meta()) return x;
  const auto group = std::dynamic_pointer_cast<ShardGroup>(x.grad_meta()->collector.lock());
  return group ? group->parameters()[static_cast<std::size_t>(x.grad_meta()->collected_as)].shard
               : x;
}

}  // namespace coshard
