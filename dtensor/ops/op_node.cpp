#include "dtensor/ops/op_node.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "dtensor/ops/computing_sink.h"
#include "dtensor/tape/saved.h"

namespace coshard {
namespace {

// Checks the gradients of a user-defined backward.
class CheckedSink final : public ComputingSink {
 public:
  CheckedSink(const GradNode& record, std::span<const TensorInfo> in, GradSink& sink)
      : record_(record), in_(in), sink_(sink), given_(in.size(), false) {}
  bool needs_grad(int input) const override {
    require_input(input);
    return sink_.needs_grad(input);
  }
  void accumulate(int input, Tensor gradient) override {
    require_gradient(input, gradient);
    given_[static_cast<std::size_t>(input)] = true;
    sink_.accumulate(input, std::move(gradient));
  }
  // An undefined gradient counts as given: the operator has said that there is none.
  void require_all_given() const {
    for (std::size_t i = 0; i < in_.size(); ++i)
      CS_REQUIRE(given_[i] || !sink_.needs_grad(static_cast<int>(i)), record_.name(),
                 ": backward accumulated no gradient for input ", i, ", ", in_[i].dtype,
                 in_[i].shape,
                 ", which requires one; if it is not differentiable in that, say "
                 "accumulate(",
                 i, ", {})");
  }
  // Computed at once, so that it is checked while its operator is known.
  void defer(int input, std::function<Tensor()> compute) override {
    if (needs_grad(input)) accumulate(input, compute());
  }
  void arrive(const std::shared_ptr<GradMeta>& meta, Tensor gradient) override {
    sink_.arrive(meta, std::move(gradient));
  }
  void hold(std::uint64_t record, std::shared_ptr<void> held) override {
    sink_.hold(record, std::move(held));
  }

 private:
  void require_input(int input) const {
    CS_REQUIRE(input >= 0 && static_cast<std::size_t>(input) < in_.size(), record_.name(),
               ": backward names input ", input, ", but the call had ", in_.size(), " inputs");
  }
  void require_gradient(int input, const Tensor& gradient) const {
    require_input(input);
    const auto at = static_cast<std::size_t>(input);
    if (!gradient.defined() || !record_.inputs[at]) return;
    const TensorInfo& x = in_[at];
    CS_REQUIRE(gradient.shape() == x.shape && gradient.dtype() == x.dtype &&
                   gradient.is_distributed() == (record_.inputs[at]->spec != nullptr),
               record_.name(), ": backward returned ", gradient, " as the gradient of input ",
               input, ", which is ", x.dtype, x.shape,
               record_.inputs[at]->spec ? " distributed" : "");
  }

  const GradNode& record_;
  std::span<const TensorInfo> in_;
  GradSink& sink_;
  std::vector<bool> given_;
};

class OpNode final : public GradNode {
 public:
  OpNode(const OpDef& op, const Attrs& attrs, std::span<const Tensor> in,
         std::span<const Tensor> out, const Decision& decision)
      : op_(op),
        attrs_(attrs),
        in_info_(decision.in_info),
        outputs_(out.size()),
        foreign_(decision.foreign) {
    saved_.reserve(in.size() + out.size());
    for (std::size_t i = 0; i < in.size(); ++i)
      save(in[i], op.saves_in >> std::min<std::size_t>(i, 31) & 1U);
    for (std::size_t i = 0; i < out.size(); ++i) save(out[i], op.saves_out >> i & 1U);
  }
  std::string_view name() const override { return op_.name; }
  bool records_backward() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    CS_REQUIRE(op_.backward, op_.name, " is not differentiable");
    std::vector<Tensor> saved;
    saved.reserve(saved_.size());
    for (const Saved& s : saved_) saved.push_back(s.get(op_.name));
    if (grad_enabled()) put_on_tape(saved);
    const std::span<const Tensor> all(saved);
    CheckedSink checked(*this, in_info_, sink);
    GradContext context{all.first(saved.size() - outputs_),
                        all.last(outputs_),
                        output_grads.first(outputs_),
                        attrs_,
                        foreign_ ? static_cast<GradSink&>(checked) : sink,
                        in_info_};
    op_.backward(context);
    // Otherwise an input may affect only outputs whose gradients are missing.
    if (foreign_ && std::ranges::all_of(context.out_grad, &Tensor::defined))
      checked.require_all_given();
  }
  bool takes_arriving(const Gathered& output_grad, std::int64_t meanwhile_ns) const override {
    if (op_.takes_arriving == nullptr || !inputs[0] || !inputs[0]->requires_grad) return false;
    if (released) return false;
    std::vector<Tensor> in;
    for (std::size_t i = 0; i + outputs_ < saved_.size(); ++i)
      in.push_back(saved_[i].get(op_.name));
    return op_.takes_arriving(output_grad, in, attrs_, meanwhile_ns);
  }
  bool release() override {
    bool any = false;
    for (Saved& s : saved_) {
      any = any || s.defined();
      s.release();
    }
    return any;
  }

 private:
  void save(const Tensor& tensor, bool wanted) {
    saved_.push_back(wanted ? Saved(tensor) : Saved());
  }
  // Puts saved tensors in their place on the tape, so that the gradient is differentiable in them.
  void put_on_tape(std::vector<Tensor>& saved) {
    const std::size_t ins = saved.size() - outputs_;
    for (std::size_t i = 0; i < ins; ++i)
      if (saved[i].defined() && inputs[i]) (saved[i] = saved[i].detach()).set_grad_meta(inputs[i]);
    for (std::size_t i = ins; i < saved.size(); ++i) {
      if (!saved[i].defined() || !is_floating(saved[i].dtype())) continue;
      saved[i] = saved[i].detach();
      mark_output(saved[i], shared_from_this(), static_cast<int>(i - ins));
    }
  }

  const OpDef& op_;
  Attrs attrs_;
  std::vector<TensorInfo> in_info_;
  std::size_t outputs_;
  bool foreign_;
  std::vector<Saved> saved_;  // inputs, then outputs
};

}  // namespace

std::shared_ptr<GradNode> make_op_node(const OpDef& op, const Attrs& attrs,
                                       std::span<const Tensor> used, std::span<const Tensor> out,
                                       const Decision& decision) {
  return std::make_shared<OpNode>(op, attrs, used, out, decision);
}

}  // namespace coshard
