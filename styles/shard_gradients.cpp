// The gradients of a group of sharded parameters: collected in one buffer, and reduced.
#include <algorithm>
#include <utility>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/output_place.h"
#include "dtensor/optim/gradients.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tape/origin.h"
#include "kernels/run.h"
#include "styles/shard_group.h"

namespace coshard {
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
  CS_REQUIRE(!active_, "backward: another one, which has not ended, reduces gradients of '",
             parameters_.front().name, "', which fully_shard has sharded");
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

}  // namespace coshard
