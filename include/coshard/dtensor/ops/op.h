#pragma once
// An operator is data: name, sharding rule, shape inference, local forward, backward written in
// operators, cost and samples. Each lives in one file of this folder and is named once, in this
// folder's meson.build; one of the user's lives in the user's program (include/coshard/op.h).
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <coshard/dtensor/ops/explicit_redistribution.h>
#include <coshard/dtensor/tape.h>
#include <coshard/dtensor/tensor.h>

namespace coshard {

constexpr int kMaxOutputs = 4;

// Everything about a call that is not a tensor: dims, sizes, flags, scalars. Which is which is the
// operator's business.
struct Attrs {
  InlineVector<std::int64_t, 20> ints;
  InlineVector<double, 4> reals;
  // Values that change from call to call and on which neither rule nor shapes depend (a random
  // stream): not compared.
  std::array<std::uint64_t, 2> opaque{};
  // NaN is itself.
  static bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  }
  friend bool operator==(const Attrs& a, const Attrs& b) {
    return a.ints == b.ints && a.reals.size() == b.reals.size() &&
           std::equal(a.reals.begin(), a.reals.end(), b.reals.begin(), same_bits);
  }
};

// A logical tensor without data, as rules and shape inference see it. shape.size()==0 and
// defined==false: absent input.
struct TensorInfo {
  Shape shape;
  DType dtype = DType::F32;
  bool defined = true;
};

// One way to run an operator along one mesh dimension: the placement of each input and output.
struct Strategy {
  std::vector<Placement> in;
  std::vector<Placement> out;
  char letter = 0;  // of the rule's, when it cuts one
  // An `extra` one with a letter is for inputs that are so already, for a number of parts that
  // divides this, where the letter is not cut yet.
  std::int64_t even_by = 0;
};

// How an operator may be cut, in the manner of einsum: one letter per dimension. A letter that an
// output has: cutting it cuts that output. A letter that no output has is contracted: cutting it
// makes the outputs Partial(contraction). '.' (and a letter listed in `whole`) is never cut. Inputs
// that lack the cut letter are wanted as Replicate. An input "*" is there for its layout only: it
// is never moved, an `extra` strategy is for inputs "*" that lie as it says, and where that is a
// cut, no other strategy is taken.
struct Rule {
  std::vector<std::string> in;
  std::vector<std::string> out;
  std::string whole;
  Reduce contraction = Reduce::Sum;
  // Letters that may be cut only into a number of parts that divides `by`; with `other`, the
  // dimension counted in larger or smaller units (a run of a view): where chunks of `by` and of
  // `other` elements end at the same places.
  struct Even {
    char letter;
    std::int64_t by;
    std::int64_t other = 0;
    bool allows(std::int64_t parts, std::int64_t cut_before) const;
  };
  std::vector<Even> even;
  // Ways in which Partial inputs pass through, e.g. (P,R)->P for matmul, and whatever letters
  // cannot say.
  std::vector<Strategy> extra;
  // The forward body minds neither where a part lies nor whether it is one range: a StridedShard of
  // an input passes through its letter like a Shard.
  bool strided = false;
};

// Into how many parts each letter has been cut by outer mesh dimensions.
class Parts {
 public:
  std::int64_t& operator[](char letter) { return parts_[static_cast<unsigned char>(letter)]; }
  std::int64_t operator[](char letter) const { return parts_[static_cast<unsigned char>(letter)]; }

 private:
  std::array<std::int64_t, 256> parts_ = [] {
    std::array<std::int64_t, 256> ones;
    ones.fill(1);
    return ones;
  }();
};

// The strategies of a rule on a mesh dimension of `n` ranks; the first is all-Replicate.
// `now`: the inputs' placements on it, where known: a StridedShard among them is offered too.
std::vector<Strategy> strategies_of(const Rule& rule, int n, const Parts& parts = {},
                                    std::span<const Placement> now = {});

// For `extra`: inputs and outputs as letters, P (Partial with that reduce) or R.
Strategy partial_strategy(std::string_view in, std::string_view out, Reduce reduce = Reduce::Sum);

// What a forward body sees: local tensors that are ready, and where they lie in the logical ones.
struct OpContext {
  std::span<const Tensor> in;  // undefined where an optional input is absent
  const Attrs& attrs;
  std::array<Tensor, kMaxOutputs> out{};
  std::array<Shape, kMaxOutputs> out_shape{};  // local shapes the outputs must have
  std::array<DType, kMaxOutputs> out_dtype{};
  std::array<std::shared_ptr<const Spec>, kMaxOutputs> out_spec{};  // null for plain tensors
  int outputs = 1;

  // New memory for output i, kept in out[i]. Error{BadInput}: infer gives no output i.
  Tensor& make(int i = 0);
  // Start of this rank's part of input i along dim (0 for a plain tensor).
  std::int64_t offset(int input, int dim) const;
  Device& device() const;
};

// What a backward sees. Everything is on the level of logical tensors: write it with operators.
struct GradContext {
  std::span<const Tensor>
      in;  // as the forward used them (after implicit redistributes), off the tape
  std::span<const Tensor> out;       // off the tape
  std::span<const Tensor> out_grad;  // undefined where nothing arrived
  const Attrs& attrs;
  GradSink& sink;
  std::span<const TensorInfo> in_info;  // logical shapes and dtypes of all inputs, saved or not
};

struct OpDef {
  std::string_view name;
  // Sharding rule for these logical inputs. Shapes have been checked by `infer`. Null: for plain
  // tensors alone.
  Rule (*rule)(std::span<const TensorInfo> in, const Attrs&);
  // Checks shapes and dtypes (Error{BadInput} naming them) and gives the logical outputs.
  std::vector<TensorInfo> (*infer)(std::span<const TensorInfo> in, const Attrs&);
  void (*forward)(OpContext&);
  void (*backward)(GradContext&);  // null: not differentiable
  // Floating-point operations of one call on these shapes.
  double (*flops)(std::span<const TensorInfo> in, const Attrs&);
  ComputeClass compute = ComputeClass::Other;
  bool view =
      false;  // outputs share the input's storage: nothing is computed, in-flight stays in flight
  // Bit i: `backward` reads in[i] (out[i]). The rest is not kept for it and is undefined in its
  // GradContext.
  unsigned saves_in = ~0u, saves_out = ~0u;
  // Rule and infer ask of attrs.reals no more than whether each is 0, 1, negative, finite: calls
  // with other numbers of these kinds share what was decided for the first.
  bool reals_by_kind = false;
  // Small calls for the conformance walk; an operator of the user's needs none.
  struct Sample {
    std::vector<TensorInfo> in;
    Attrs attrs;
    double low = -2,
           high = 2;  // range of float inputs; integer inputs are drawn from [0, int_high)
    std::int64_t int_high = 4;
    std::vector<int> grads{};  // inputs to differentiate; empty: all floating ones
  };
  std::vector<Sample> (*samples)() = nullptr;
};

// Runs an operator on plain tensors, or on DTensors of one mesh. For DTensors a strategy of the
// rule is chosen for every mesh dimension (choose.h) and inputs are redistributed to it. Outputs
// are undefined beyond the operator's count. A plain tensor without dimensions stands for a
// Replicate beside DTensors. Error{BadInput} for any other mixture of plain tensors and DTensors,
// and for two meshes.
std::array<Tensor, kMaxOutputs> call(const OpDef& op, std::span<const Tensor> in,
                                     const Attrs& attrs);
Tensor call1(const OpDef& op, std::initializer_list<Tensor> in, const Attrs& attrs = {});

// The same, with a strategy that gives the output the first input's layout where there is one.
std::array<Tensor, kMaxOutputs> call_keeping_layout(const OpDef& op, std::span<const Tensor> in,
                                                    const Attrs& attrs);

// Runs an operator with in[0] as its destination: in[0] keeps its storage, dtype and layout (the
// first output is redistributed and cast to them) and becomes, on the tape, the operator's output.
// Error{BadInput}: in[0] is a leaf that requires a gradient, the output has another shape, or is
// floating where in[0] is not. Whoever saved in[0] for its own backward fails there.
Tensor call_in_place(const OpDef& op, std::span<const Tensor> in, const Attrs& attrs = {});

// All operators, by name.
std::span<const OpDef* const> all_operators();

// From now on this rank cuts the operator called `name` by `rule` instead of its own
// (torch.distributed.tensor.experimental.register_sharding). All ranks do the same, before they use
// the operator on DTensors: Error{BadInput} after that, and for a name that no operator has.
using RuleFunction = std::function<Rule(std::span<const TensorInfo> in, const Attrs&)>;
void register_sharding(std::string_view name, RuleFunction rule);
// The rule that holds: the registered one, or the operator's own. Error{BadInput} where it has
// none.
Rule sharding_rule(const OpDef& op, std::span<const TensorInfo> in, const Attrs& attrs);

}  // namespace coshard
