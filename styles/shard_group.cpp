#include "styles/shard_group.h"

#include <algorithm>
#include <utility>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/dtensor/tensor/promotion.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/output_place.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/optim/gradients.h"
#include "dtensor/redistribute/deferred.h"
#include "dtensor/redistribute/follow_up.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/marks.h"
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

namespace {

// The layout of this rank's shard of a gradient: the parameter shard's, except that sums over other
// dimensions of its mesh are left to the optimizer.
std::shared_ptr<const Spec> spec_of_part(const ShardedParameter& p, const DeviceMesh& mesh) {
  const Tensor gradient = p.whole.grad();
  if (!gradient.is_distributed()) return p.shard.spec();
  Layout layout = p.shard.layout();
  const std::vector<std::string>& names = p.shard.mesh().names();
  for (int m = 0, other = 0; m < layout.ndim(); ++m) {
    const auto& name = names[static_cast<std::size_t>(m)];
    if (std::ranges::find(mesh.names(), name) != mesh.names().end()) continue;
    const Placement& placement = gradient.layout()[other++];
    if (placement.is_partial()) layout[m] = placement;
  }
  return make_spec(p.shard.mesh(), layout, p.shard.shape());
}

// The layout of the sum of two gradients: partial where one of them is and the other is replicated.
std::optional<Layout> layout_of_sum(const Layout& a, const Layout& b) {
  Layout sum = a;
  for (int m = 0; m < a.ndim(); ++m) {
    if (a[m] == b[m]) continue;
    const bool adds_up = (a[m].is_replicate() && b[m] == Placement(Partial())) ||
                         (b[m].is_replicate() && a[m] == Placement(Partial()));
    if (!adds_up) return std::nullopt;
    sum[m] = Partial();
  }
  return sum;
}

// What is known of the terms of a gradient, now of a shard's.
void pass_on(const GradMeta::Terms& whole, GradMeta::Terms& shard) {
  shard.alike |= whole.alike;
  shard.alike_loss |= whole.alike_loss;
  shard.summed |= whole.summed;
  if (!whole.from.empty()) shard.from = whole.from;
}

// Whether this rank holds the value of a gradient in `from` once it is laid out as `to`: where a
// replicated one becomes partial, the dimension's first rank does, and the others hold zeros.
bool holds_value(const DeviceMesh& mesh, const Layout& from, const Layout& to) {
  for (int m = 0; m < from.ndim(); ++m)
    if (from[m] != to[m] && mesh.local_rank(m) != 0) return false;
  return true;
}

}  // namespace

// requires_grad may change on the shard, or on the whole parameter while the module runs.
void ShardGroup::refresh() {
  for (ShardedParameter& p : parameters_) {
    if (p.whole.requires_grad() != p.requires_grad) p.shard.set_requires_grad(!p.requires_grad);
    p.requires_grad = p.shard.requires_grad();
    p.whole.set_requires_grad(p.requires_grad);
  }
}

// What is frozen is neither stored nor sent.
void ShardGroup::lay_out_gradients() {
  const auto wanted = [](const ShardedParameter& p) { return p.requires_grad; };
  const bool same = std::ranges::all_of(parameters_, [&](const ShardedParameter& p) {
    return wanted(p) == (gradient_place(p).begin >= 0);
  });
  if (same) return;
  gradient_layout_ = std::ranges::all_of(parameters_, wanted)
                         ? layout_
                         : shard_layout(parameters_, memory_.dtype(), mesh_.size(sharding()),
                                        mesh_.local_rank(sharding()), wanted);
}

void ShardGroup::make_gradients() {
  if (!gradients_.defined())
    gradients_ = Tensor::empty(memory_.device(), Shape{gradient_layout_->size}, memory_.dtype());
}

bool ShardGroup::begin(std::span<const int> reached) {
  CS_REQUIRE(!active_,
             "backward: another backward is still reducing gradients of fully_shard parameter '",
             parameters_.front().name, "'");
  active_ = true;
  done_ = false;
  lay_out_gradients();
  open_ = static_cast<int>(reached.size());
  for (const int i : reached) parameters_[static_cast<std::size_t>(i)].open = true;
  return true;
}

Tensor ShardGroup::gradient_view(const ShardedParameter& parameter) const {
  return part_of_memory(gradients_, parameter.shape, gradient_place(parameter).begin);
}

Tensor ShardGroup::place(const GradMeta& leaf) {
  ShardedParameter& p = parameters_[static_cast<std::size_t>(leaf.collected_as)];
  if (p.taken || leaf.gradient.defined() || gradient_place(p).begin < 0) return {};
  make_gradients();
  p.taken = true;
  return gradient_view(p);
}

bool ShardGroup::lies_in_place(const ShardedParameter& parameter, const Tensor& gradient) const {
  return gradient.storage()->buffer == gradients_.storage()->buffer &&
         gradient.storage_offset() == gradient_place(parameter).begin && gradient.is_contiguous();
}

void ShardGroup::add(GradMeta& leaf, Tensor gradient) {
  ShardedParameter& p = parameters_[static_cast<std::size_t>(leaf.collected_as)];
  CS_REQUIRE(!grad_enabled(), "backward: create_graph, but the gradient of '", p.name,
             "', which fully_shard has sharded, is sent off the tape");
  CS_REQUIRE(active_, "backward: a gradient of '", p.name,
             "', which fully_shard has sharded and which required none in forward, came from its "
             "recomputation; change requires_grad after backward");
  CS_REQUIRE(open_ > 0, "backward: a gradient of '", p.name,
             "', which fully_shard has sharded, arrived after it had been reduced");
  CS_REQUIRE(gradient_place(p).begin >= 0, "backward: a gradient of '", p.name,
             "', which fully_shard has sharded, but requires_grad was off when backward began");
  make_gradients();
  const Tensor place = gradient_view(p);
  if (leaf.gradient.defined()) {
    const OutputPlace output(place);
    gradient = coshard::add(leaf.gradient, gradient);
  }
  if (!lies_in_place(p, gradient)) copy_into(place, gradient);
  leaf.gradient = place.with_spec(gradient.spec());
  leaf.gradient.set_marks(gradient.marks());
  p.taken = true;
}

void ShardGroup::complete(int leaf) {
  ShardedParameter& p = parameters_[static_cast<std::size_t>(leaf)];
  if (!std::exchange(p.open, false)) return;
  if (--open_ > 0) return;
  reduce();
  finish_backward();
}

void ShardGroup::end() {
  active_ = false;
  open_ = 0;
  for (ShardedParameter& p : parameters_) p.open = p.taken = false;
  gradients_ = Tensor();
  schedule_->end_backward();
}

void ShardGroup::give_up() noexcept {
  active_ = false;
  open_ = 0;
  gradients_ = Tensor();
  for (ShardedParameter& p : parameters_) {
    p.open = p.taken = false;
    p.whole.grad_meta()->gradient = Tensor();
  }
}

// Peers must send and lack the same gradients; the next collective compares.
void ShardGroup::note_gradients() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (int m = 0; m < mesh_.ndim() && !parameters_[i].whole.grad().defined(); ++m)
      mesh_.note(m, without_gradient("reduced a group of shards", parameters_[i].shard, i,
                                     parameters_.size()));
}

// Summed over replicas too.
Tensor ShardGroup::scattered() {
  const Tensor packed =
      Tensor::empty(memory_.device(), Shape{gradient_layout_->total}, reduce_dtype_);
  pack(gradients_, packed, *gradient_layout_);
  const auto rank = static_cast<std::size_t>(mesh_.local_rank(sharding()));
  const Tensor mine =
      Tensor::empty(memory_.device(), Shape{(*gradient_layout_->counts)[rank]}, reduce_dtype_);
  Collective c = collective(CollectiveKind::ReduceScatter, gradient_layout_->total, "gradients");
  c.reduce = options_.reduce;
  c.counts = gradient_layout_->counts;
  issue_into(mesh_.communicator(sharding()), std::move(c), packed, mine);
  if (sharding() == 0 || mesh_.size(0) == 1) return mine;
  c = collective(CollectiveKind::AllReduce, mine.local_numel(), "gradients");
  c.reduce = options_.reduce;
  if (!std::exchange(compared_replicas_, true)) c.replicas = hashes_when_cut();
  issue_into(mesh_.communicator(0), std::move(c), mine, mine);
  return mine;
}

void ShardGroup::reduce() {
  note_gradients();
  std::vector<Part> parts;
  for (ShardedParameter& p : parameters_) {
    if (p.whole.grad().defined()) {
      GradMeta& whole = *p.whole.grad_meta();
      std::uint64_t marks = whole.gradient.marks();
      for (int m = mesh_.ndim(); m-- > 0;)
        marks = marks_once_summed(whole, marks, mesh_, m, options_.reduce,
                                  [&] { return str_cat("parameter '", p.name, "'"); });
      parts.push_back({&p, spec_of_part(p, mesh_), marks});
      pass_on(whole.terms, p.shard.grad_meta()->terms);
    } else if (gradients_.defined() && gradient_place(p).begin >= 0 && numel(p.shape) > 0) {
      const Tensor missing = gradient_view(p);
      kernels::run(*missing.device(),
                   kernels::Fill{missing.address(), missing.dtype(), missing.local_numel(), 0});
    }
    p.whole.grad_meta()->gradient = Tensor();
    p.whole.grad_meta()->terms = {};
  }
  if (parts.empty()) return;
  const Tensor sums = cast_local(scattered(), sum_dtype_);
  gradients_ = Tensor();
  add_earlier(parts, sums);
  const Tensor rounded = cast_local(sums, dtype_);
  for (const Part& part : parts) {
    ShardedParameter& p = *part.parameter;
    const Tensor before = p.shard.grad();
    const auto part_of = [&](const Tensor& all) {
      return part_of_memory(all, p.shard.local_shape(), gradient_place(p).shard_begin, part.spec);
    };
    const Tensor gradient = part_of(rounded);
    gradient.set_marks(part.marks | (before.defined() ? before.marks() : 0));
    replace_grad(p.shard, gradient);
    if (sum_dtype_ != dtype_) {
      p.sum = part_of(sums);
      p.rounded = gradient;
      p.writes_when_rounded = gradient.storage()->changes();
    }
    tell(p);
  }
}

// Whether p.sum is what the shard's gradient stands for: nobody has scaled, replaced or dropped it.
bool ShardGroup::holds_sum(const ShardedParameter& p) {
  const Tensor gradient = p.shard.grad();
  return p.sum.defined() && gradient.defined() && gradient.id() == p.rounded.id() &&
         gradient.storage()->changes() == p.writes_when_rounded;
}

void ShardGroup::forget_old_sums() {
  for (ShardedParameter& p : parameters_)
    if (p.sum.defined() && !holds_sum(p)) p.sum = p.rounded = Tensor();
}

// Adds to each part, once it has arrived, the gradient that its shard has already: of an earlier
// backward, or of an operator outside of the module, which reads the shard itself.
void ShardGroup::add_earlier(std::vector<Part>& parts, const Tensor& now) const {
  struct Sum {
    Tensor place, before;
    bool keeps, adds;  // what this rank holds of the part, and of the gradient from before
  };
  std::vector<Sum> sums;
  for (auto& [parameter, spec, marks] : parts) {
    Tensor before = parameter->shard.grad();
    if (!before.defined()) continue;
    const auto layout = layout_of_sum(before.layout(), spec->layout);
    CS_REQUIRE(layout, "backward: the gradient of '", parameter->name, "' is ", before,
               ", to which one in ", spec->layout,
               " cannot be added; call zero_grad, or reduce_gradients after each backward");
    const bool keeps = holds_value(spec->mesh, spec->layout, *layout);
    const bool adds = holds_value(spec->mesh, before.layout(), *layout);
    spec = make_spec(spec->mesh, *layout, spec->shape);
    if (before.local_numel() == 0) continue;
    if (holds_sum(*parameter)) before = parameter->sum;
    before.wait("backward");
    sums.push_back({part_of_memory(place_of(now), before.local_shape(),
                                   gradient_place(*parameter).shard_begin),
                    cast_local(before.raw_local(), sum_dtype_), keeps, adds});
  }
  if (sums.empty()) return;
  make_from(now, now, [sums = std::move(sums)](const Tensor&) {
    for (const auto& [place, before, keeps, adds] : sums) {
      const kernels::View to = view_of(place), from = view_of(before);
      Device& device = *place.device();
      if (!keeps)
        kernels::run(device, kernels::Fill{place.address(), place.dtype(), place.local_numel(), 0});
      if (adds) kernels::run(device, kernels::Binary{kernels::BinaryOp::Add, to, to, from});
    }
  });
}

// Runs the hooks of a parameter whose gradient has been sent.
void ShardGroup::tell(const ShardedParameter& parameter) {
  for (const auto& hook : GradHooks(parameter.shard.grad_meta()->hooks)) {
    CS_REQUIRE(!hook->replace || !*hook->replace, "backward: a hook (register_hook) of '",
               parameter.name,
               "', which fully_shard has sharded, cannot replace a gradient that is in flight; use "
               "register_post_accumulate_grad_hook");
    if (const auto accumulated = hook->accumulated) (*accumulated)();
  }
}

void ShardGroup::unshard(std::vector<Tensor>& arriving) {
  require_own_slots();
  refresh();
  gather();
  if (!std::exchange(by_hand_, true) && uses_++ == 0) put_in_slots(true);
  if (memory_.defined() && memory_.in_flight()) arriving.push_back(memory_);
}

void ShardGroup::reshard() {
  if (!std::exchange(by_hand_, false) || --uses_ > 0) return;
  put_in_slots(false);
  if (backwards_ == 0) release();
}

// A shard that was written to is not what is gathered.
void ShardGroup::require_not_stale() const {
  if (!by_hand_) return;
  for (std::size_t i = 0; i < gathered_at_.size(); ++i)
    CS_REQUIRE(parameters_[i].shard.storage()->changes() == gathered_at_[i], "fully_shard: '",
               parameters_[i].name, "' of ", module_.type_name(), " '", module_.path(),
               "' was written to since unshard; call reshard first");
}

namespace {

bool differs(const Tensor& x, const std::optional<DType>& wanted) {
  return wanted && x.defined() && is_floating(x.dtype()) && x.dtype() != *wanted;
}

}  // namespace

void require_floating(const MixedPrecisionPolicy& policy) {
  const auto check = [](const char* name, const std::optional<DType>& dtype) {
    CS_REQUIRE(!dtype || is_floating(*dtype), "fully_shard: ", name, " of mp_policy is ", *dtype,
               "; it must be f64, f32, bf16 or f16");
  };
  check("param_dtype", policy.param_dtype);
  check("reduce_dtype", policy.reduce_dtype);
  check("output_dtype", policy.output_dtype);
}

bool ShardGroup::casts(const Tensor& input) const {
  const MixedPrecisionPolicy& policy = options_.mp_policy;
  return policy.cast_forward_inputs && differs(input, policy.param_dtype);
}

bool ShardGroup::casts(const Outputs& outputs) const {
  const auto& wanted = options_.mp_policy.output_dtype;
  return std::ranges::any_of(outputs, [&](const Tensor& y) { return differs(y, wanted); });
}

void ShardGroup::cast_inputs(Inputs& inputs) const {
  const auto cast = [this](Tensor& x) {
    if (casts(x) && !x.in_flight()) x = to(x, *options_.mp_policy.param_dtype);
  };
  for (Tensor& x : inputs.args) cast(x);
  for (auto& named : inputs.kwargs) cast(named.second);
}

void ShardGroup::cast_outputs(Outputs& outputs) const {
  const auto& wanted = options_.mp_policy.output_dtype;
  for (Tensor& y : outputs)
    if (differs(y, wanted)) y = to(y, *wanted);
}

namespace {

// Recorded on a module's outputs, so that its backward runs before the module's.
class BeforeBackward final : public GradNode {
 public:
  BeforeBackward(std::shared_ptr<ShardGroup> group, std::uint64_t behind)
      : group_(std::move(group)), behind_(behind) {}
  std::string_view name() const override { return "fully_shard"; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    sink.accumulate(0, output_grads[0]);
  }
  Task<void> awaited_backward(std::vector<Tensor> output_grads, GradSink& sink) override {
    std::shared_ptr<void> running;
    std::vector<Tensor> awaited = group_->before_backward(running);
    sink.hold(behind_, std::move(running));
    if (awaited.empty()) return {};
    return after(std::move(awaited), std::move(output_grads.front()), sink);
  }

 private:
  static Task<void> after(std::vector<Tensor> awaited, Tensor gradient, GradSink& sink) {
    Task<void> arrived = arrival_of(std::move(awaited));
    co_await std::move(arrived);
    sink.accumulate(0, std::move(gradient));
  }
  std::shared_ptr<ShardGroup> group_;
  std::uint64_t behind_;
};

}  // namespace

void ShardGroup::leave(std::vector<Tensor>& outputs, std::uint64_t behind) {
  if (!grad_enabled()) return;
  for (Tensor& y : outputs) {
    if (!y.defined() || !y.requires_grad()) continue;
    const Tensor inputs[] = {y};
    Tensor out = y.with_spec(y.spec());
    push_record(std::make_shared<BeforeBackward>(shared_from_this(), behind), inputs,
                std::span<Tensor>(&out, 1));
    y = std::move(out);
  }
  schedule_->record(shared_from_this());
}

}  // namespace coshard
