#pragma once
// An operator is data: name, sharding rule, shape inference, local forward, backward written in
// operators, cost and samples. Built-in ones are in dtensor/ops, listed in its meson.build; a
// user's operator is in the user's program (coshard/op.h).
#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/ops/attrs.h>
#include <coshard/dtensor/ops/explicit_redistribution.h>
#include <coshard/dtensor/tape/tape.h>
#include <coshard/dtensor/tensor/tensor.h>

#pragma GCC visibility push(default)
namespace coshard {

constexpr int kMaxOutputs = 4;

// A logical tensor without data, as rules and shape inference see it. defined == false: an absent
// optional input.
struct TensorInfo {
  Shape shape;
  DType dtype = DType::F32;
  bool defined = true;
};

// One way to run an operator along one mesh dimension: the placement of each input and output.
struct Strategy {
  std::vector<Placement> in;
  std::vector<Placement> out;
  char axis = 0;  // the rule's axis that it shards, if any
  // For an `extra` strategy with an axis: it applies only to inputs that are already placed that
  // way, if the number of ranks divides this and no outer mesh dimension shards the axis.
  std::int64_t even_by = 0;
};

// How an operator may be sharded, in the style of einsum: one axis per dimension. Sharding an axis
// that an output has shards that output. An axis that no output has is contracted: sharding it
// makes the outputs Partial(contraction). '.' and axes listed in `whole` are never sharded. Inputs
// without the sharded axis must be Replicate. An input "*" matters only for its layout: it is never
// moved, an `extra` strategy applies only if "*" has the placement it names, and if that is a shard
// no other strategy is used.
struct Rule {
  std::vector<std::string> in;
  std::vector<std::string> out;
  std::string whole;
  Reduce contraction = Reduce::Sum;
  // Axes that may be sharded only into a number of parts that divides `by`; with `other`, for a
  // dimension counted in larger or smaller units (merged or split by a view): where chunks of `by`
  // and of `other` elements end at the same offsets.
  struct Even {
    char axis;
    std::int64_t by;
    std::int64_t other = 0;
    bool allows(std::int64_t parts, std::int64_t cut_before) const;
  };
  std::vector<Even> even;
  // How Partial inputs pass through, e.g. (P,R)->P for matmul, and whatever axes cannot express.
  std::vector<Strategy> extra;
  // The forward depends neither on the offset of a shard nor on whether it is contiguous: a
  // StridedShard of an input passes through its axis like a Shard.
  bool strided = false;
};

// Into how many shards each axis is already split by outer mesh dimensions.
class Parts {
 public:
  std::int64_t& operator[](char axis) { return parts_[static_cast<unsigned char>(axis)]; }
  std::int64_t operator[](char axis) const { return parts_[static_cast<unsigned char>(axis)]; }

 private:
  std::array<std::int64_t, 256> parts_ = [] {
    std::array<std::int64_t, 256> ones;
    ones.fill(1);
    return ones;
  }();
};

// The strategies of a rule over a mesh dimension of `n` ranks; the first is all-Replicate. `now`:
// the inputs' placements over it, if known: a StridedShard among them is offered too.
std::vector<Strategy> strategies_of(const Rule& rule, int n, const Parts& parts = {},
                                    std::span<const Placement> now = {});

// For `extra`: inputs and outputs as axes, P (Partial with that reduction) or R.
Strategy partial_strategy(std::string_view in, std::string_view out, Reduce reduce = Reduce::Sum);

// What a forward sees: local tensors that are ready, and their offsets in the logical ones.
struct OpContext {
  std::span<const Tensor> in;  // undefined where an optional input is absent
  const Attrs& attrs;
  std::array<Tensor, kMaxOutputs> out{};
  std::array<Shape, kMaxOutputs> out_shape{};  // local shapes the outputs must have
  std::array<DType, kMaxOutputs> out_dtype{};
  std::array<std::shared_ptr<const Spec>, kMaxOutputs> out_spec{};  // null for plain tensors
  int outputs = 1;

  // Output i, kept in out[i]: new memory, or what an in-place call writes to. Error{BadInput}:
  // infer returned no output i.
  Tensor& make(int i = 0);
  // Where this rank's shard of input i begins along dim (0 for a plain tensor).
  std::int64_t offset(int input, int dim) const;
  Device& device() const;
};

// What a backward sees: logical tensors. Write it with operators.
struct GradContext {
  // As the forward used them (after implicit redistributes), off the tape.
  std::span<const Tensor> in;
  std::span<const Tensor> out;       // off the tape
  std::span<const Tensor> out_grad;  // undefined where no gradient arrived
  const Attrs& attrs;
  GradSink& sink;
  std::span<const TensorInfo> in_info;  // logical shapes and dtypes of all inputs, saved or not
};

struct OpDef {
  std::string_view name;
  // Sharding rule for these logical inputs, whose shapes `infer` has checked. Null: plain tensors
  // only.
  Rule (*rule)(std::span<const TensorInfo> in, const Attrs&);
  // Checks shapes and dtypes (Error{BadInput} names them) and returns the logical outputs.
  std::vector<TensorInfo> (*infer)(std::span<const TensorInfo> in, const Attrs&);
  void (*forward)(OpContext&);
  void (*backward)(GradContext&);  // null: not differentiable
  ComputeClass compute = ComputeClass::Other;
  // Outputs share the input's storage: nothing is computed, and a tensor in flight stays in flight.
  bool view = false;
  // Whether `backward` leaves an output gradient that is in flight to accumulate_product, which
  // computes as its shards arrive. Null: never. `in`: what was saved; `meanwhile_ns`: duration of
  // other work that could run while it is awaited. Must return the same on all ranks.
  bool (*takes_arriving)(const Gathered& out_grad, std::span<const Tensor> in, const Attrs&,
                         std::int64_t meanwhile_ns) = nullptr;
  // Bit i: `backward` reads in[i] (out[i]). The others are not saved and are undefined in its
  // GradContext.
  unsigned saves_in = ~0u, saves_out = ~0u;
  // Bit i: the outputs depend on the values of in[i], not only on its shape.
  unsigned reads_in = ~0u;
  // rule and infer depend on floating-point attributes only by whether each is 0, 1, negative or
  // finite: calls that agree in this share a cached decision.
  bool reals_by_kind = false;
  // `forward` computes each element of its output, which it gets from make(), from the inputs'
  // elements at that position (after broadcasting), and reads these before it writes the element:
  // in place, it may write over its input.
  bool pointwise = false;
  // Small calls for the conformance walk; a user's operator needs none.
  struct Sample {
    std::vector<TensorInfo> in;
    Attrs attrs;
    // Range of floating-point inputs; integer inputs are drawn from [0, int_high).
    double low = -2, high = 2;
    std::int64_t int_high = 4;
    std::vector<int> grads{};  // inputs to differentiate; empty: all floating ones
  };
  std::vector<Sample> (*samples)() = nullptr;
};

// Runs an operator on plain tensors, or on DTensors of one mesh. For DTensors it chooses a strategy
// of the rule per mesh dimension (choose.h) and redistributes the inputs to it. Outputs beyond the
// operator's count are undefined. A plain tensor without dimensions counts as Replicate beside
// DTensors. Error{BadInput}: any other mix of plain tensors and DTensors; two meshes.
std::array<Tensor, kMaxOutputs> call(const OpDef& op, std::span<const Tensor> in,
                                     const Attrs& attrs);
Tensor call1(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs = {});

// Runs an operator in place on in[0]: in[0] keeps its storage, dtype and layout (the first output
// is redistributed and cast to them) and becomes the operator's output on the tape. Off the tape, a
// pointwise operator writes straight into in[0] where nothing stands in the way.
// Error{BadInput}: in[0] is a leaf that requires a gradient; the output has another shape, or is
// floating-point where in[0] is not. A record that saved in[0] fails in backward.
Tensor call_in_place(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs = {});

// All operators, by name.
std::span<const OpDef* const> all_operators();

// From now on, sharding of the operator called `name` follows `rule` on this rank
// (torch.distributed.tensor.experimental.register_sharding). All ranks must do the same before they
// use the operator on DTensors. Error{BadInput}: the operator has already been used on DTensors; an
// unknown name.
using RuleFunction = std::function<Rule(std::span<const TensorInfo> in, const Attrs&)>;
void register_sharding(std::string_view name, RuleFunction rule);
// The rule in effect: the registered one, or the operator's own. Error{BadInput} if it has none.
Rule sharding_rule(const OpDef& op, std::span<const TensorInfo> in, const Attrs& attrs);

}  // namespace coshard
#pragma GCC visibility pop
