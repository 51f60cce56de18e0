// How an operator runs: find (or make) the decision for these shapes and layouts, redistribute the
// inputs, run the local body, wrap the outputs, record the call on the tape.
#include <limits>
#include <unordered_map>

#include "dtensor/ops/op.h"
#include "dtensor/redistribute/cost.h"
#include "dtensor/redistribute/plan.h"
#include "dtensor/redistribute/redistribute.h"
#include "runtime/coro/rank_context.h"
#include "runtime/coro/user_call.h"
#include "runtime/device/allocation_label.h"

namespace coshard {
namespace {

struct InputKey {
  std::shared_ptr<const Spec> spec;
  Shape shape;  // of a plain tensor
  DType dtype = DType::F32;
  bool defined = false;
};

// What was decided for one operator on inputs of these kinds.
struct Decision {
  const OpDef* op;
  Attrs attrs;
  bool in_place = false;
  std::vector<InputKey> inputs;

  std::vector<TensorInfo> in_info;
  std::vector<Layout> want;  // per input; used where `change` says so
  std::vector<bool> change;
  bool changes = false;
  bool absent = false;  // this rank is not in the mesh: nothing runs
  int outputs = 1;
  std::array<Shape, kMaxOutputs> out_shape{};  // local
  std::array<DType, kMaxOutputs> out_dtype{};
  std::array<std::shared_ptr<const Spec>, kMaxOutputs> out_spec{};
};

void mix(std::uint64_t& h, std::uint64_t value) {
  h = (h ^ value) * 0x9E3779B97F4A7C15ULL, h ^= h >> 29;
}

std::uint64_t hash_of(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                      bool in_place) {
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(&op) + in_place;
  for (auto value : attrs.ints) mix(h, static_cast<std::uint64_t>(value));
  for (auto value : attrs.reals) mix(h, std::bit_cast<std::uint64_t>(value));
  for (const Tensor& t : in) {
    if (!t.defined()) {
      mix(h, 7);
    } else if (t.is_distributed()) {
      mix(h, reinterpret_cast<std::uintptr_t>(t.spec().get()));
    } else {
      for (auto size : t.local_shape()) mix(h, static_cast<std::uint64_t>(size));
    }
    if (t.defined()) mix(h, static_cast<std::uint64_t>(t.dtype()));
  }
  return h;
}

bool matches(const Decision& d, const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
             bool in_place) {
  if (d.op != &op || d.inputs.size() != in.size() || !(d.attrs == attrs)) return false;
  if (d.in_place != in_place) return false;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const InputKey& key = d.inputs[i];
    if (key.defined != in[i].defined()) return false;
    if (!key.defined) continue;
    if (key.dtype != in[i].dtype() || key.spec != in[i].spec()) return false;
    if (!key.spec && !(key.shape == in[i].local_shape())) return false;
  }
  return true;
}

std::string show(const OpDef& op, std::span<const Tensor> in) {
  std::string text(op.name);
  text += ": ";
  for (std::size_t i = 0; i < in.size(); ++i) text += (i ? ", " : "") + describe(in[i]);
  return text;
}

// The mesh that all inputs share; undefined when all are plain.
DeviceMesh mesh_of(const OpDef& op, std::span<const Tensor> in) {
  DeviceMesh mesh;
  bool plain = false;
  for (const Tensor& t : in) {
    if (!t.defined()) continue;
    if (!t.is_distributed()) {
      plain = true;
    } else if (!mesh.defined()) {
      mesh = t.mesh();
    } else {
      CS_REQUIRE(mesh == t.mesh(), show(op, in), ": inputs lie on different meshes");
    }
  }
  CS_REQUIRE(!mesh.defined() || !plain, show(op, in), ": a mixture of plain tensors and DTensors");
  return mesh;
}

// `keep`: only strategies that leave the first input's placement alone and give it to the output.
const Strategy* cheapest(const std::vector<Strategy>& strategies, std::span<const Tensor> in,
                         int mesh_dim, int ranks, bool keep) {
  const Strategy* best = nullptr;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const Strategy& strategy : strategies) {
    if (keep && !(strategy.in[0] == in[0].layout()[mesh_dim] && strategy.out[0] == strategy.in[0]))
      continue;
    double cost = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!in[i].defined()) continue;
      const std::int64_t bytes = in[i].numel() * static_cast<std::int64_t>(size_of(in[i].dtype()));
      cost += step_cost(in[i].layout()[mesh_dim], strategy.in[i], bytes, ranks);
    }
    if (cost < best_cost) best = &strategy, best_cost = cost;
  }
  return best;
}

std::vector<Placement> placements_along(std::span<const Tensor> in, int mesh_dim) {
  std::vector<Placement> placements;
  for (const Tensor& t : in) placements.push_back(t.defined() ? t.layout()[mesh_dim] : Replicate());
  return placements;
}

void decide_layouts(Decision& d, const OpDef& op, std::span<const Tensor> in,
                    const DeviceMesh& mesh, const std::vector<TensorInfo>& out_info) {
  const Rule rule = op.rule(d.in_info, d.attrs);
  CS_REQUIRE(rule.in.size() == in.size() && rule.out.size() == out_info.size(), op.name,
             ": the rule has ", rule.in.size(), " inputs, the call ", in.size());
  d.want.assign(in.size(), Layout());
  std::vector<Layout> out_layout(out_info.size());
  Parts parts;
  for (int m = 0; m < mesh.ndim(); ++m) {
    const int n = mesh.size(m);
    const auto strategies = strategies_of(rule, n, parts, placements_along(in, m));
    const Strategy* best = d.in_place ? cheapest(strategies, in, m, n, true) : nullptr;
    if (!best) best = cheapest(strategies, in, m, n, false);
    CS_REQUIRE(best, show(op, in), ": no strategy along mesh dimension ", m);
    for (std::size_t i = 0; i < in.size(); ++i) d.want[i].push_back(best->in[i]);
    for (std::size_t i = 0; i < out_info.size(); ++i) out_layout[i].push_back(best->out[i]);
    if (best->letter) parts[best->letter] *= n;
  }
  d.absent = !mesh.contains_this_rank();
  for (std::size_t i = 0; i < in.size(); ++i) {
    d.change.push_back(in[i].defined() && !(in[i].layout() == d.want[i]));
    d.changes = d.changes || d.change.back();
  }
  for (std::size_t i = 0; i < out_info.size(); ++i) {
    d.out_spec[i] = make_spec(mesh, out_layout[i], out_info[i].shape);
    d.out_shape[i] = d.out_spec[i]->local_shape;
  }
}

std::unique_ptr<Decision> decide(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                                 bool in_place) {
  auto d = std::make_unique<Decision>();
  d->op = &op;
  d->in_place = in_place;
  d->attrs = attrs;
  for (const Tensor& t : in) {
    InputKey key;
    TensorInfo info;
    info.defined = key.defined = t.defined();
    if (t.defined()) {
      key.spec = t.spec();
      key.shape = t.local_shape();
      key.dtype = t.dtype();
      info.shape = t.shape();
      info.dtype = t.dtype();
    }
    d->inputs.push_back(key);
    d->in_info.push_back(info);
  }
  const DeviceMesh mesh = mesh_of(op, in);
  const std::vector<TensorInfo> out_info = op.infer(d->in_info, attrs);
  d->outputs = static_cast<int>(out_info.size());
  for (std::size_t i = 0; i < out_info.size(); ++i) {
    d->out_shape[i] = out_info[i].shape;
    d->out_dtype[i] = out_info[i].dtype;
  }
  d->change.clear();
  if (mesh.defined()) {
    decide_layouts(*d, op, in, mesh, out_info);
  } else {
    d->change.assign(in.size(), false);
  }
  return d;
}

// Decisions of this rank. A cache by value: forgetting it changes nothing but time.
const Decision& decision_for(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs,
                             bool in_place) {
  struct Decisions {
    std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<Decision>>> table;
    std::size_t entries = 0;
  };
  static const RankLocal<Decisions> decisions;
  auto& [table, entries] = *decisions;
  constexpr std::size_t kMostEntries = 16'384;
  auto& bucket = table[hash_of(op, in, attrs, in_place)];
  for (const auto& d : bucket)
    if (matches(*d, op, in, attrs, in_place)) return *d;
  auto made = decide(op, in, attrs, in_place);
  if (++entries > kMostEntries) {
    table.clear();
    entries = 1;
    auto& fresh = table[hash_of(op, in, attrs, in_place)];
    fresh.push_back(std::move(made));
    return *fresh.back();
  }
  bucket.push_back(std::move(made));
  return *bucket.back();
}

class OpRecord final : public Record {
 public:
  OpRecord(const OpDef& op, const Attrs& attrs, std::span<const Tensor> in,
           std::span<const Tensor> out, const Decision& decision)
      : op_(op), attrs_(attrs), in_info_(decision.in_info) {
    for (std::size_t i = 0; i < in.size(); ++i)
      in_.push_back(in[i].defined() && (op.saves_in >> std::min<std::size_t>(i, 31) & 1U)
                        ? in[i].detach()
                        : Tensor());
    for (std::size_t i = 0; i < out.size(); ++i)
      out_.push_back(op.saves_out >> i & 1U ? out[i].detach() : Tensor());
    versions_ = saved_versions();
  }
  std::string_view name() const override { return op_.name; }
  bool records_backward() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    CS_REQUIRE(op_.backward, op_.name, ": has no gradient");
    require_unmodified();
    if (grad_enabled()) return backward_on_tape(output_grads, sink);
    GradContext context{in_, out_, output_grads.first(out_.size()), attrs_, sink, in_info_};
    op_.backward(context);
  }

 private:
  // What was saved stands for the tensors of the call again, so that its part in the gradient can
  // be differentiated.
  void backward_on_tape(std::span<const Tensor> output_grads, GradSink& sink) {
    std::vector<Tensor> in = in_, out = out_;
    for (std::size_t i = 0; i < in.size(); ++i)
      if (in[i].defined() && inputs[i]) (in[i] = in[i].detach()).set_grad_meta(inputs[i]);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (!out[i].defined() || !is_floating(out[i].dtype())) continue;
      out[i] = out[i].detach();
      mark_output(out[i], shared_from_this(), static_cast<int>(i));
    }
    GradContext context{in, out, output_grads.first(out.size()), attrs_, sink, in_info_};
    op_.backward(context);
  }

  std::uint64_t saved_versions() const {
    std::uint64_t sum = 0;
    for (const auto* saved : {&in_, &out_})
      for (const Tensor& t : *saved) sum += t.defined() ? t.storage()->changes() : 0;
    return sum;
  }
  // A version only grows, so an equal sum means that none has changed.
  void require_unmodified() const {
    CS_REQUIRE(saved_versions() == versions_, show(op_, in_),
               ": backward needs a tensor that was changed in place after this call");
  }

  const OpDef& op_;
  Attrs attrs_;
  std::vector<TensorInfo> in_info_;
  std::vector<Tensor> in_, out_;
  std::uint64_t versions_ = 0;
};

// What a rank has waited for is the same on all ranks: one outside the mesh waits too, and has a
// view of what is in flight where the others have one.
void run_body(const OpDef& op, OpContext& context, bool absent) {
  World* world = World::current();
  if (!op.view)
    for (const Tensor& t : context.in)
      if (t.defined()) t.wait(op.name);  // so that waiting is not counted as computing
  if (absent) {
    for (int i = 0; i < context.outputs; ++i) {
      Tensor& nothing = context.make(i);
      if (op.view && context.in[0].in_flight())
        nothing = context.in[0].view_as(nothing.local_shape(), nothing.strides(), 0, nullptr);
    }
    return;
  }
  if (op.view) return op.forward(context);
  if (!world || !world->observed()) return op.forward(context);
  const Computing told(world->observer(), op.name, op.compute);
  op.forward(context);
}

static_assert(ExplicitRedistribution::Forbid() == ExplicitRedistribution::Forbid::Off);
const BranchLocal<ExplicitRedistribution::Forbid> forbidden;

void require_explicit(const OpDef& op, std::span<const Tensor> in, const Decision& d) {
  using Forbid = ExplicitRedistribution::Forbid;
  const Forbid forbid = forbidden.get();
  if (forbid == Forbid::Off) return;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!d.change[i]) continue;
    if (forbid == Forbid::Communication && !outline_of(in[i].spec(), d.want[i]).communicates)
      continue;
    fail(ErrorKind::BadInput, cat(show(op, in), ": implicit redistribution of input ", i, " from ",
                                  in[i].layout(), " to ", d.want[i]));
  }
}

std::array<Tensor, kMaxOutputs> run_call(const OpDef& op, std::span<const Tensor> in,
                                         const Attrs& attrs, bool in_place) {
  CS_REQUIRE(in.empty() || in[0].defined(), op.name, ": the first input is undefined");
  const AllocationLabel label(op.name);
  const Decision& d = decision_for(op, in, attrs, in_place);
  std::vector<Tensor> moved;
  std::span<const Tensor> used = in;
  if (d.changes) {
    require_explicit(op, in, d);
    const WithinOperator within(op.name);
    moved.assign(in.begin(), in.end());
    for (std::size_t i = 0; i < in.size(); ++i)
      if (d.change[i]) moved[i] = redistribute_raw(in[i], d.want[i]);
    used = moved;
  }
  OpContext context{used, attrs};
  context.outputs = d.outputs;
  context.out_shape = d.out_shape;
  context.out_dtype = d.out_dtype;
  context.out_spec = d.out_spec;
  const auto count = static_cast<std::size_t>(d.outputs);
  run_body(op, context, d.absent);
  for (std::size_t i = 0; i < count; ++i)
    if (d.out_spec[i]) context.out[i] = context.out[i].with_spec(d.out_spec[i]);
  if (taped(in)) {
    const std::span<Tensor> out(context.out.data(), count);
    push_record(std::make_shared<OpRecord>(op, attrs, used, out, d), in, out);
  }
  return std::move(context.out);
}

}  // namespace

Tensor& OpContext::make(int i) {
  const auto at = static_cast<std::size_t>(i);
  const std::shared_ptr<Device>* device = nullptr;
  for (const Tensor& t : in)
    if (t.defined()) device = &t.device();
  out[at] = Tensor::empty(*device, out_shape[at], out_dtype[at]);
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

std::array<Tensor, kMaxOutputs> call_keeping_layout(const OpDef& op, std::span<const Tensor> in,
                                                    const Attrs& attrs) {
  return run_call(op, in, attrs, true);
}

Tensor call1(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs) {
  return std::move(call(op, std::span<const Tensor>(in.begin(), in.size()), attrs)[0]);
}

ExplicitRedistribution::ExplicitRedistribution(Forbid forbid) : before_(forbidden.get()) {
  forbidden.own() = forbid;
}
ExplicitRedistribution::~ExplicitRedistribution() { forbidden.own() = before_; }

}  // namespace coshard
