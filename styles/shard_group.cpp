#include "styles/shard_group.h"

#include <algorithm>
#include <utility>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/dtensor/tensor/promotion.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/redistribute/deferred.h"
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/origin.h"
#include "kernels/run.h"
#include "runtime/device/graph.h"
#include "runtime/interned_text.h"

namespace coshard {
namespace {

constexpr LeafOwner kFullyShard{
    "fully_shard",
    "call the module that fully_shard was given, which gathers it, or give the module inside to "
    "fully_shard, too"};

}  // namespace

Tensor part_of_memory(const Tensor& memory, const Shape& shape, std::int64_t begin,
                      std::shared_ptr<const Spec> spec) {
  return memory.view_as(shape, row_major(shape), begin, std::move(spec));
}

void copy_into(const Tensor& to, const Tensor& from) {
  if (to.local_numel() > 0)
    kernels::run(*to.device(), kernels::Copy{view_of(to), view_of(from.raw_local())});
}

// A running forward.
class ShardGroup::Use {
 public:
  // `again`: recomputation in backward (recompute.h).
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

// A backward that runs through the module.
class ShardGroup::Backward {
 public:
  explicit Backward(std::shared_ptr<ShardGroup> group) : group_(std::move(group)) {
    ++group_->backwards_;
  }
  ~Backward() {
    --group_->backwards_;
    group_->finish_backward();
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

 private:
  std::shared_ptr<ShardGroup> group_;
};

// The pending work of freed parameters: reading them gathers them again.
class ShardGroup::WhenRead final : public IssuedLater {
 public:
  explicit WhenRead(std::weak_ptr<ShardGroup> group) : group_(std::move(group)) {}
  std::string describe() const override { return "parameters that fully_shard has freed"; }

 private:
  std::shared_ptr<WorkState> issue() override {
    const std::shared_ptr<ShardGroup> group = group_.lock();
    CS_REQUIRE(group, "fully_shard: parameters are read whose module is gone");
    group->gather();
    return std::make_shared<FollowUp>(group->memory_.storage()->pending.state(), [] {});
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
  const auto all = [](const ShardedParameter&) { return true; };
  dtype_ = first.dtype();
  const DType computing = options_.mp_policy.param_dtype.value_or(dtype_);
  reduce_dtype_ = options_.mp_policy.reduce_dtype.value_or(computing);
  sum_dtype_ = promoted(dtype_, reduce_dtype_);
  layout_ = shard_layout(parameters_, computing, mesh_.size(sharding()),
                         mesh_.local_rank(sharding()), all);
  gradient_layout_ = layout_;
  const std::string& last = parameters_.back().name;
  names_ =
      interned(parameters_.size() == 1 ? last : str_cat(parameters_.front().name, " to ", last));
  memory_ = Tensor::empty(first.device(), Shape{0}, computing);
  memory_ = part_of_memory(memory_, Shape{layout_->size}, 0);
  none_ = memory_.storage()->buffer;
  std::vector<Tensor> shards;
  for (const ShardedParameter& p : parameters_) shards.push_back(p.shard);
  shapes_ = shapes_to_compare(shards);
  order_ = order_to_compare(shards);
  for (ShardedParameter& p : parameters_) {
    p.whole = part_of_memory(memory_, p.shape, place_in(*layout_, p).begin, p.spec);
    p.whole.set_unwritable("is gathered by fully_shard for this forward");
  }
}

void ShardGroup::adopt_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ShardedParameter& p = parameters_[i];
    p.requires_grad = p.shard.requires_grad();
    p.whole.set_requires_grad(p.requires_grad);
    p.whole.grad_meta()->collector = weak_from_this();
    p.whole.grad_meta()->collected_as = static_cast<int>(i);
    if (const auto& meta = p.shard.grad_meta()) meta->owner = &kFullyShard;
  }
  free_memory();
}

std::shared_ptr<void> ShardGroup::enter(std::vector<Tensor>& arriving) {
  const bool again = redistributes_are_deferred();
  require_own_slots();
  require_not_stale();
  std::vector<Tensor> shards;
  for (ShardedParameter& p : parameters_) shards.push_back(p.shard);
  refresh();
  forget_old_sums();
  static_cast<void>(taped(shards));  // a ReadLog notes them, for recomputation
  gather();
  auto use = std::make_shared<Use>(shared_from_this(), again);
  if (options_.overlap != Overlap::Off)
    again ? schedule_->gather_previous(*this) : schedule_->gather_next(*this);
  if (memory_.defined() && memory_.in_flight()) arriving.push_back(memory_);
  if (again) await_reductions(arriving);
  if (!again) done_ = false;
  return use;
}

std::vector<Tensor> ShardGroup::before_backward(std::shared_ptr<void>& running) {
  running = std::make_shared<Backward>(shared_from_this());
  gather();
  std::vector<Tensor> awaited;
  if (memory_.defined() && memory_.in_flight()) awaited.push_back(memory_);
  list_gradients(awaited);  // this backward adds to them
  await_reductions(awaited);
  if (options_.overlap != Overlap::Off) schedule_->gather_previous(*this);
  return awaited;
}

void ShardGroup::list_gradients(std::vector<Tensor>& awaited) const {
  for (const ShardedParameter& p : parameters_)
    for (const Tensor& g : {p.shard.grad(), p.sum})
      if (g.defined() && g.in_flight()) awaited.push_back(g);
}

// Without overlap, backward does not run while gradients are being reduced.
void ShardGroup::await_reductions(std::vector<Tensor>& awaited) const {
  if (options_.overlap != Overlap::Off) return;
  for (const auto& each : schedule_->all())
    if (const auto group = each.lock()) group->list_gradients(awaited);
}

void ShardGroup::require_own_slots() const {
  for (const ShardedParameter& p : parameters_)
    for (const Tensor* slot : p.slots)
      CS_REQUIRE(slot->id() == (uses_ > 0 ? p.whole : p.shard).id(), "fully_shard: parameter '",
                 p.name, "' was replaced since; write to the shard that is there (copy_)");
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
  const auto rank = static_cast<std::size_t>(mesh_.local_rank(sharding()));
  const Tensor packed =
      Tensor::empty(memory_.device(), Shape{(*layout_->counts)[rank]}, memory_.dtype());
  for (const ShardedParameter& p : parameters_) require_values(p.shard);
  for (const ShardedParameter& p : parameters_)
    copy_into(part_of_memory(packed, p.shard.local_shape(), place_in(*layout_, p).shard_begin),
              p.shard);
  return packed;
}

// Of those that nobody has written to since.
std::shared_ptr<const ReplicaHashes> ShardGroup::hashes_when_cut() const {
  auto all = std::make_shared<ReplicaHashes>();
  for (const ShardedParameter& p : parameters_) {
    const bool written = p.shard.storage()->changes() != p.writes_when_cut;
    all->hashes.push_back(written ? 0 : p.hash_when_cut);
    all->names.push_back(str_cat("parameter '", p.name, "'"));
  }
  return all;
}

Collective ShardGroup::collective(CollectiveKind kind, std::int64_t extent,
                                  std::string_view label) const {
  Collective c;
  c.kind = kind;
  c.extent = extent;
  c.label = label;
  c.names = names_;
  c.shape = shapes_;
  c.origin = origin_of(order_);
  return c;
}

void ShardGroup::gather() {
  if (parameters_.empty() || (gathered_ && (uses_ > 0 || !changed()))) return;
  require_not_recording(*memory_.device(), "fully_shard", "allocate parameters");
  const Tensor packed = packed_shards();
  Storage& storage = *memory_.storage();
  auto buffer = memory_.device()->make_buffer(static_cast<std::size_t>(layout_->size) *
                                              size_of(memory_.dtype()));
  buffer->writes =
      storage.changes() + (changed() ? 1 : 0);  // so that backward rejects what was saved before
  buffer->taped_write = storage.buffer->taped_write;
  storage.buffer = std::move(buffer);
  storage.in_flight = false;
  storage.pending = Work();
  gathered_ = true;
  gathered_at_.clear();
  for (const ShardedParameter& p : parameters_)
    gathered_at_.push_back(p.shard.storage()->changes());
  const Tensor received = Tensor::empty(memory_.device(), Shape{layout_->total}, memory_.dtype());
  Collective c = collective(CollectiveKind::AllGather, layout_->total, "parameters");
  c.counts = layout_->counts;
  if (!std::exchange(compared_, true)) c.replicas = hashes_when_cut();
  try {  // issuing throws in a cancelled branch
    issue_through(mesh_.communicator(sharding()), std::move(c), packed, received, memory_,
                  [from = place_of(received), to = place_of(memory_), layout = layout_] {
                    unpack(from, to, *layout);
                  });
  } catch (...) {
    free_memory();
    throw;
  }
}

void ShardGroup::release() {
  if (gathered_) free_memory();
}

void ShardGroup::finish_backward() {
  if (backwards_ > 0 || open_ > 0) return;
  done_ = true;
  if (uses_ == 0) release();
}

void ShardGroup::free_memory() {
  if (parameters_.empty()) return;
  Storage& storage = *memory_.storage();
  none_->writes = storage.changes();
  none_->taped_write = storage.buffer->taped_write;
  storage.buffer = none_;
  gathered_ = false;
  // Kept alive here: it may call gather(), which removes it from the memory.
  when_read_ = std::make_shared<WhenRead>(weak_from_this());
  memory_.set_in_flight(Work(when_read_));
}

Tensor lasting(const Tensor& x) {
  if (!x.defined() || !x.grad_meta()) return x;
  const auto group = std::dynamic_pointer_cast<ShardGroup>(x.grad_meta()->collector.lock());
  return group ? group->parameters()[static_cast<std::size_t>(x.grad_meta()->collected_as)].shard
               : x;
}

}  // namespace coshard
