#include "dtensor/writes.h"

#include "dtensor/step_graph.h"
#include "dtensor/strided.h"
#include "dtensor/tape.h"

namespace coshard {
namespace {

// The base after a write through a view: the view's elements are the written value's.
class WriteRecord final : public Record {
 public:
  explicit WriteRecord(const ViewPlace& place) : place_(place) {}
  std::string_view name() const override { return "write"; }
  bool records_backward() const override { return true; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    if (sink.wants(0)) sink.give(0, masked(output_grads[0], place_));
    if (sink.wants(1)) sink.give(1, gathered(output_grads[0], place_));
  }

 private:
  ViewPlace place_;
};

bool shares_memory(const Tensor& x) {
  return x.defined() && x.requires_grad() && !x.is_leaf() &&
         x.grad_meta()->producer->shares_memory();
}

void require_writable_view(const Tensor& x, const Tensor& base, std::string_view who) {
  if (!base.requires_grad()) return;
  CS_REQUIRE(!base.is_leaf(), who, "_: ", x, " is a view of a leaf that requires a gradient");
  CS_REQUIRE(x.requires_grad(), who, "_: ", x,
             " is a view of a tensor that requires a gradient, made under a NoGradGuard");
}

// The base is what the write of `value`, if any, through x has made of it.
void write_into_base(const Tensor& x, const Tensor& base, const Tensor& value) {
  const Tensor inputs[] = {base, value};
  Tensor written = base;  // the same handle
  push_record(std::make_shared<WriteRecord>(ViewPlace(base, x)), inputs,
              std::span<Tensor>(&written, 1));
  x.storage()->buffer->taped_write = x.storage()->changes();
  base.set_current();  // views catch up
}

void become(const Tensor& x, std::shared_ptr<GradMeta> meta) {
  x.storage()->buffer->taped_write = x.storage()->changes();
  x.leave_base();
  x.set_grad_meta(std::move(meta));
  x.set_current();
}

}  // namespace

void Tensor::mark_written() const {
  ++impl_->storage->buffer->writes;
  StepGraph* step = StepGraph::recording();
  if (step == nullptr) return;
  step->on_replay([written = std::weak_ptr(impl_->storage->buffer)] {
    if (const auto buffer = written.lock()) ++buffer->writes;
  });
}

void require_writable(const Tensor& x, std::string_view who) {
  CS_REQUIRE(x.defined(), who, "_: the tensor is undefined");
  CS_REQUIRE(x.unwritable() == nullptr, who, "_: ", x, " ", x.unwritable(),
             ": in place on it is refused; clone it first");
  if (!grad_enabled()) return;
  CS_REQUIRE(!x.requires_grad() || !x.is_leaf(), who, "_: ", x,
             " is a leaf that requires a gradient");
  const Tensor base = x.base();
  if (base.defined()) require_writable_view(x, base, who);
  for (const Tensor& t : {x, base})
    CS_REQUIRE(!shares_memory(t), who, "_: ", x, " is memory that ",
               t.grad_meta()->producer->name(),
               " shares with a tensor on the tape: in place on it is refused; clone it first");
}

void record_write(const Tensor& x, const Tensor& value) {
  const Tensor base = x.base();
  if (base.defined() && !x.is_distributed()) return write_into_base(x, base, value);
  auto meta = std::make_shared<GradMeta>();
  meta->requires_grad = true;
  meta->producer = value.grad_meta()->producer;
  meta->output = value.grad_meta()->output;
  meta->spec = x.spec();
  become(x, std::move(meta));
}

void record_constant_write(const Tensor& x) {
  x.mark_written();
  if (!grad_enabled() || !x.requires_grad()) return;
  const Tensor base = x.base();
  if (base.defined() && !x.is_distributed()) return write_into_base(x, base, Tensor());
  become(x, nullptr);
}

void catch_up(const Tensor& x) {
  const Tensor base = x.base();
  CS_REQUIRE(base.defined() && base.is_current() && !x.is_distributed(), x,
             ": its memory was changed in place on the tape through another handle (a view of a "
             "DTensor, detach, to_local, from_local), which has the gradient");
  x.set_current();
  x.set_grad_meta(nullptr);
  if (!base.requires_grad()) return;
  const Tensor inputs[] = {base};
  Tensor view = x;
  push_record(make_view_record(ViewPlace(base, x)), inputs, std::span<Tensor>(&view, 1));
}

}  // namespace coshard
