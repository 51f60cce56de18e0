#include "dtensor/ops/op_record.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace coshard {
namespace {

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
    CS_REQUIRE(saved_versions() == versions_, show_call(op_, in_),
               ": backward needs a tensor that was changed in place after this call");
  }

  const OpDef& op_;
  Attrs attrs_;
  std::vector<TensorInfo> in_info_;
  std::vector<Tensor> in_, out_;
  std::uint64_t versions_ = 0;
};

}  // namespace

std::shared_ptr<Record> make_op_record(const OpDef& op, const Attrs& attrs,
                                       std::span<const Tensor> used, std::span<const Tensor> out,
                                       const Decision& decision) {
  return std::make_shared<OpRecord>(op, attrs, used, out, decision);
}

}  // namespace coshard
