// Runs an operator: finds or makes the decision for these shapes and layouts, redistributes the
// inputs, runs the local body, wraps the outputs, records the call on the tape.
#include <algorithm>

#include <coshard/dtensor/ops/from_local.h>
#include <coshard/dtensor/ops/op.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/runtime/coro/rank_context.h>
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/decision.h"
#include "dtensor/ops/local.h"
#include "dtensor/ops/op_call.h"
#include "dtensor/ops/op_node.h"
#include "dtensor/ops/output_check.h"
#include "dtensor/ops/output_place.h"
#include "dtensor/ops/recipe.h"
#include "dtensor/ops/writes.h"
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/in_flight.h"
#include "dtensor/redistribute/plan.h"
#include "dtensor/tape/marks.h"
#include "dtensor/tape/origin.h"
#include "runtime/coro/user_call.h"
#include "runtime/device/allocation_label.h"

namespace coshard {
namespace {

struct OutputCheckHere {
  OutputCheck check = nullptr;
};
const RankLocal<OutputCheckHere> output_check;

// "f32[8,512] f32[512,256]": this rank's parts.
std::string inputs_text(std::span<const Tensor> inputs) {
  std::string text;
  for (const Tensor& t : inputs)
    text += (text.empty() ? "" : " ") + (t.defined() ? str_cat(t.dtype(), t.local_shape()) : "-");
  return text;
}

// All ranks wait for the same: one outside the mesh waits too, and its result is a view of data in
// flight where the others' is.
void run_body(const OpDef& op, OpContext& context, bool absent) {
  World* world = World::current();
  if (!op.view)
    for (const Tensor& t : context.in)
      if (t.defined()) {
        if (t.in_flight() && compute_later(op, context)) return;
        t.wait(op.name);
      }  // so that waiting is not counted as computing
  if (absent) {
    for (int i = 0; i < context.outputs; ++i) {
      Tensor& nothing = context.make(i);
      if (op.view)
        nothing = context.in[0].view_as(nothing.local_shape(), nothing.strides(), 0, nullptr);
    }
    return;
  }
  if (op.view) return op.forward(context);
  if (!world || !world->observed()) return op.forward(context);
  {
    const Computing told(world->observer(), context.device(), op.name, op.compute,
                         [&context] { return inputs_text(context.in); });
    op.forward(context);
  }
  if (output_check->check != nullptr) output_check->check(op, context);
}

// Checks the outputs of a user-defined forward: plain tensors of the decided shapes and dtypes.
void require_outputs(const OpDef& op, OpContext& made) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(made.outputs); ++i) {
    const Tensor& out = made.out[i];
    CS_REQUIRE(out.defined() && !out.is_distributed() && out.shape() == made.out_shape[i] &&
                   out.dtype() == made.out_dtype[i],
               op.name, ": forward set output ", i, " to ", out, "; expected a local tensor ",
               made.out_dtype[i], made.out_shape[i]);
    if (made.out_spec[i]) made.out[i] = local_contiguous(out);
  }
}

static_assert(ExplicitRedistribution::Forbid() == ExplicitRedistribution::Forbid::Off);
const BranchLocal<ExplicitRedistribution::Forbid> forbidden;

// Whether x would lie in memory as the layout of the decision wants it.
bool stays(const Tensor& x, const Decision& d) {
  for (int m = 0; d.changes && m < x.layout().ndim(); ++m)
    if (!(x.layout()[m] == d.want[0][m]) && x.mesh().size(m) > 1) return false;
  return true;
}

// Whether x's strides decide if a view of it is a copy on one device, and nobody knows them.
bool is_unsure(const OpDef& op, const Attrs& attrs, const Tensor& x) {
  return op.name == "view" && x.is_distributed() && has_unknown_strides(x) &&
         merges_dimensions(x.shape(), attrs.as<ViewAttrs>().shape);
}

// Whether a view of x is a copy on one device, or may be on some rank: then all ranks copy.
bool copies(const OpDef& op, const Attrs& attrs, const Tensor& x, const Decision& d) {
  if (!x.is_distributed() || !x.logical() || op.name != "view" || d.foreign || d.changes)
    return false;
  const Shape to = attrs.as<ViewAttrs>().shape;
  return is_unsure(op, attrs, x) || strides_forbid(x, to);
}

// The strides of a view of x on one device: the operator is run on the geometry of that.
Strides logical_of_view(const OpDef& op, const Attrs& attrs, const Tensor& x, const Tensor& out) {
  const Strides from = x.logical() ? *x.logical() : row_major(x.shape());
  if (op.name == "view")
    return view_strides(x.shape(), from, out.shape()).value_or(row_major(out.shape()));
  const Tensor whole = x.view_as(x.shape(), from, 0, nullptr);  // its memory is not touched
  OpContext context{{&whole, 1}, attrs};
  context.out_shape[0] = out.shape();
  context.out_dtype[0] = x.dtype();
  op.forward(context);
  return context.out[0].strides();
}

void set_logical_of_view(const OpDef& op, const Attrs& attrs, const Tensor& x, const Tensor& out,
                         const Decision& d) {
  if (!x.is_distributed() || d.foreign || (!x.logical() && op.name == "view")) return;
  if (has_unknown_strides(x)) return out.set_logical(x.logical());
  set_logical(out, logical_of_view(op, attrs, x, out));
}

// Marks the output of a view operator: a view of x, or a copy, whose writes reach x if only the
// layout prevents a view.
void mark_view(const OpDef& op, const Attrs& attrs, const Tensor& x, const Tensor& out,
               const Decision& d) {
  if (out.storage()->buffer == x.storage()->buffer && stays(x, d)) return out.set_base(x);
  const bool follows = x.is_distributed() && !d.foreign && op.backward != nullptr &&
                       !(op.name == "view" && strides_forbid(x, attrs.as<ViewAttrs>().shape));
  const bool unsure = is_unsure(op, attrs, x);
  if (out.unwritable() == nullptr)  // an expanded one says so itself
    out.set_unwritable(unsure ? kUnsureView : follows ? kCopiedView : kCopyOfView);
  if (!follows) return;
  const auto view = std::make_shared<OperatorView>(x, grad_enabled(), op, attrs);
  view->unsure = unsure;
  out.set_copied_view(view);
}

// In memory of its own, in x's place.
Tensor same_in_own_memory(const Tensor& x, std::string_view who) {
  x.wait(who);
  const Tensor copy = copy_of(x);
  copy.set_origin(x.origin());
  return copy;
}

// What is no view of x has no gaps, which it would have on some ranks and not on others. An
// expanded one has none, but repeats.
void own_memory_has_no_gaps(Tensor& out, const Tensor& x) {
  const bool own = out.storage()->buffer != x.storage()->buffer && out.unwritable() == nullptr;
  if (own && !out.is_contiguous()) out = copy_later(out);
}

void require_explicit(const OpDef& op, std::span<const Tensor> in, const Decision& d) {
  using Forbid = ExplicitRedistribution::Forbid;
  const Forbid forbid = forbidden.get();
  if (forbid == Forbid::Off) return;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!d.change[i]) continue;
    if (forbid == Forbid::Communication &&
        !outline_of(in[i].spec(), d.want[i], in[i].dtype()).communicates)
      continue;
    fail(ErrorKind::BadInput,
         str_cat(show_call(op, in), ": needs an implicit redistribution of input ", i, " from ",
                 in[i].layout(), " to ", d.want[i]));
  }
}

const BranchLocal<bool> replicates_plain;

// What to do about plain tensors beside DTensors.
std::string how_to_join(std::span<const Tensor> in) {
  for (const Tensor& t : in)
    if (t.defined() && t.grad_meta() && t.grad_meta()->owner != nullptr)
      return str_cat(t.grad_meta()->name.empty() ? describe(t) : std::string(t.grad_meta()->name),
                     " is this rank's shard of a parameter: ", t.grad_meta()->owner->remedy);
  return "make the plain one a DTensor (distribute_tensor, from_local), or take to_local() of the "
         "other";
}

// Makes plain tensors Replicate on the mesh of the others, if they are scalars or under an
// ImplicitReplication; never the first input of an in-place call.
std::vector<Tensor> all_on_one_mesh(const OpDef& op, std::span<const Tensor> in, bool in_place) {
  std::vector<Tensor> together(in.begin(), in.end());
  const auto placed = std::find_if(
      in.begin(), in.end(), [](const Tensor& t) { return t.defined() && t.is_distributed(); });
  for (Tensor& t : together) {
    if (!t.defined() || t.is_distributed()) continue;
    CS_REQUIRE((t.ndim() == 0 || replicates_plain.get()) && !(in_place && &t == &together[0]),
               show_call(op, in), ": got both plain tensors and DTensors; ", how_to_join(in));
    if (grad_enabled())  // a metric may do with each rank's own
      require_alike(t, placed->mesh(), Layout::filled(placed->mesh().ndim(), Replicate()),
                    [&] { return show_call(op, in); });
    t = from_local(t, placed->mesh());
  }
  return together;
}

// The inputs in the layouts of the decision.
std::vector<Tensor> moved_inputs(const OpDef& op, std::span<const Tensor> in, const Decision& d) {
  require_explicit(op, in, d);
  const WithinOperator within(op.name);
  std::vector<Tensor> moved(in.begin(), in.end());
  for (std::size_t i = 0; i < in.size(); ++i)
    if (d.change[i]) moved[i] = redistribute_raw(in[i], d.want[i]);
  return moved;
}

// Whether the output may be written straight into x: x can hold it as it is, and every input that
// lies in x's memory has each element at its own position.
bool may_write_over(const Tensor& x, const OpDef& op, std::span<const Tensor> used,
                    const Decision& d) {
  return op.pointwise && d.outputs == 1 && d.out_spec[0] == x.spec() &&
         d.out_shape[0] == x.local_shape() && d.out_dtype[0] == x.dtype() && x.is_contiguous() &&
         std::ranges::none_of(used, [&x](const Tensor& t) {
           return t.defined() && memory_overlaps(t, x) && !is_same_view(t, x);
         });
}

std::array<Tensor, kMaxOutputs> run_call(const OpDef& op, std::span<const Tensor> in,
                                         const Attrs& attrs, bool in_place) {
  CS_REQUIRE(in.empty() || in[0].defined(), called_or(op.name), ": the first input is undefined");
  catch_up_with_writes(in);
  const AllocationLabel label(op.name);
  const CachesHeld held;  // calls from here add to the caches
  const Decision* decision = decision_for(op, in, attrs, in_place, held);
  if (!decision) return run_call(op, all_on_one_mesh(op, in, in_place), attrs, in_place);
  const Decision& d = *decision;
  std::vector<Tensor> moved;
  std::span<const Tensor> used = in;
  if (d.changes) used = moved = moved_inputs(op, in, d);
  if (op.view && copies(op, attrs, in[0], d)) used = moved = {same_in_own_memory(in[0], op.name)};
  OpContext context{used, attrs};
  context.outputs = d.outputs;
  const auto count = static_cast<std::size_t>(d.outputs);
  for (std::size_t i = 0; i < count; ++i) {  // most have one of kMaxOutputs
    context.out_shape[i] = d.out_shape[i];
    context.out_dtype[i] = d.out_dtype[i];
    context.out_spec[i] = d.out_spec[i];
  }
  if (const Tensor& x = in[0]; in_place && !taped(in) && may_write_over(x, op, used, d))
    context.out[0] = x.raw_local();
  run_body(op, context, d.absent);
  if (d.foreign) [[unlikely]]
    require_outputs(op, context);
  if (op.view && d.changes) own_memory_has_no_gaps(context.out[0], in[0]);
  const std::uint64_t origin = origin_of_result(used);
  for (std::size_t i = 0; i < count && origin != 0; ++i)
    if (context.out[i].defined()) context.out[i].set_origin(origin);
  const std::uint64_t marks = marks_of_result(used, op.reads_in);
  for (std::size_t i = 0; i < count; ++i)
    if (context.out[i].defined()) context.out[i].set_marks(marks);
  for (std::size_t i = 0; i < count; ++i)
    if (d.out_spec[i])
      context.out[i] = std::move(context.out[i]).with_spec(std::move(context.out_spec[i]));
  if (taped(in)) {
    const std::span<Tensor> out(context.out.data(), count);
    push_record(make_op_node(op, attrs, used, out, d), in, out);
  }
  if (op.view) {
    set_logical_of_view(op, attrs, in[0], context.out[0], d);
    mark_view(op, attrs, in[0], context.out[0], d);
  }
  return std::move(context.out);
}

}  // namespace

OpCall::OpCall(const OpDef& op, std::vector<Tensor> in, const Attrs& attrs)
    : op_(op), attrs_(attrs), in_(std::move(in)), used_(in_) {
  catch_up_with_writes(in_);
  const CachesHeld held;
  const Decision* decision = decision_for(op_, in_, attrs_, false, held);
  CS_REQUIRE(decision, show_call(op_, in_), ": got both plain tensors and DTensors");
  const Decision& d = *decision;
  if (d.changes) used_ = moved_inputs(op_, in_, d);
  absent_ = d.absent;
  out_spec_ = d.out_spec[0];
  out_dtype_ = d.out_dtype[0];
  out_shape_ = d.out_shape[0];
  const Tensor none[1];
  if (taped(in_)) record_ = make_op_node(op_, attrs_, used_, none, d);
}

std::uint64_t OpCall::origin() const { return origin_of_result(used_); }
std::uint64_t OpCall::marks() const { return marks_of_result(used_, op_.reads_in); }

Tensor OpCall::record(Tensor out) {
  if (out.origin() == 0) out.set_origin(origin());
  out.set_marks(marks());
  if (out_spec_) out = std::move(out).with_spec(out_spec_);
  if (record_) push_record(record_, in_, std::span<Tensor>(&out, 1));
  return out;
}

Tensor& OpContext::make(int i) {
  CS_REQUIRE(i >= 0 && i < outputs, "make: output ", i, " is out of range for an operator with ",
             outputs, " outputs");
  const auto at = static_cast<std::size_t>(i);
  if (out[at].defined()) return out[at];
  const std::shared_ptr<Device>* device = nullptr;
  for (const Tensor& t : in)
    if (t.defined()) device = &t.device();
  out[at] = OutputPlace::take(*device, out_shape[at], out_dtype[at]);
  if (!out[at].defined()) out[at] = Tensor::empty(*device, out_shape[at], out_dtype[at]);
  return out[at];
}

std::int64_t OpContext::offset(int input, int dim) const {
  const Tensor& t = in[static_cast<std::size_t>(input)];
  return t.is_distributed() ? t.spec()->offset[static_cast<std::size_t>(dim)] : 0;
}

Device& OpContext::device() const {
  for (const Tensor& t : in)
    if (t.defined()) return *t.device();
  fail(ErrorKind::BadInput, "operator without tensor inputs");
}

std::array<Tensor, kMaxOutputs> call(const OpDef& op, std::span<const Tensor> in,
                                     const Attrs& attrs) {
  return run_call(op, in, attrs, false);
}

std::array<Tensor, kMaxOutputs> call_over_first(const OpDef& op, std::span<const Tensor> in,
                                                const Attrs& attrs) {
  return run_call(op, in, attrs, true);
}

Tensor call1(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs) {
  return std::move(call(op, std::span<const Tensor>(in.begin(), in.size()), attrs)[0]);
}

void set_output_check(OutputCheck check) { output_check->check = check; }

ExplicitRedistribution::ExplicitRedistribution(Forbid forbid) : before_(forbidden.get()) {
  forbidden.own() = forbid;
}
ExplicitRedistribution::~ExplicitRedistribution() { forbidden.own() = before_; }

ImplicitReplication::ImplicitReplication() : before_(replicates_plain.get()) {
  replicates_plain.own() = true;
}
ImplicitReplication::~ImplicitReplication() { replicates_plain.own() = before_; }

}  // namespace coshard
