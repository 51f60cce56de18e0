#include "dtensor/ops/writes.h"

#include <utility>

#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/capture/step_graph.h"
#include "dtensor/ops/copied_views.h"
#include "dtensor/ops/strided.h"
#include "dtensor/tape/grad_mode.h"
#include "dtensor/tape/marks.h"

namespace coshard {
namespace {

// The base after a write through a view: the view's elements come from the written value.
class WriteNode final : public GradNode {
 public:
  explicit WriteNode(const ViewPlace& place) : place_(place) {
    if (place.base_spec) layout_ = partial_as_replicate(place.base_spec->layout);
  }
  std::string_view name() const override { return "write"; }
  bool records_backward() const override { return true; }
  const Layout* gradient_layout() const override { return place_.base_spec ? &layout_ : nullptr; }
  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    if (sink.needs_grad(0)) sink.accumulate(0, masked(output_grads[0], place_));
    if (sink.needs_grad(1)) sink.accumulate(1, gathered(output_grads[0], place_));
  }

 private:
  ViewPlace place_;
  Layout layout_;
};

bool shares_memory(const Tensor& x) {
  return x.defined() && x.requires_grad() && !x.is_leaf() &&
         x.grad_meta()->producer->shares_memory();
}

constexpr const char* kUntaped =
    " and cannot be changed in place on the tape; change it under a NoGradGuard, as an optimizer "
    "does";

void require_no_view_of_leaf(const Tensor& x, const Tensor& base, std::string_view who) {
  CS_REQUIRE(!base.requires_grad() || !base.is_leaf(), who, ": ", x,
             " is a view of a leaf that requires a gradient,", kUntaped);
}

void require_writable_view(const Tensor& x, const Tensor& base, std::string_view who) {
  require_no_view_of_leaf(x, base, who);
  if (!base.requires_grad()) return;
  CS_REQUIRE(x.requires_grad(), who, ": ", x,
             " is a view of a tensor that requires a gradient, made under a NoGradGuard; make it "
             "outside of that");
}

void require_writable_on_tape(const Tensor& x, std::string_view who) {
  CS_REQUIRE(!x.requires_grad() || !x.is_leaf(), who, ": ", x,
             " is a leaf that requires a gradient,", kUntaped);
  const Tensor base = x.base();
  if (base.defined()) require_writable_view(x, base, who);
  for (const Tensor& t : {x, base})
    CS_REQUIRE(!shares_memory(t), who, ": ", x, " is memory that ", t.grad_meta()->producer->name(),
               " shares with a tensor on the tape: it cannot be changed in place; change a clone() "
               "of it");
}

// x itself may be changed: a view of a leaf's copy may not.
void require_writable_copy(const Tensor& x, std::string_view who) {
  const Tensor& of = x.copied_view()->of;
  if (grad_enabled()) require_no_view_of_leaf(x, of, who);
  require_writable(of, who);
  x.copied_view()->make_again(x);
  if (grad_enabled()) require_writable_view(x, of, who);
}

// retain_grad belongs to the tensor, so it carries over to a new producer.
void go_on_retaining(const std::shared_ptr<GradMeta>& before, const Tensor& x) {
  if (!before || !before->producer) return;
  const auto is_this = [&](const auto& meta) { return meta.lock() == before; };
  if (std::erase_if(before->producer->retaining, is_this) == 0 || !x.grad_meta()) return;
  x.grad_meta()->gradient = before->gradient;
  x.grad_meta()->producer->retaining.push_back(x.grad_meta());
}

// Makes a write through x part of the base's history; `value` is undefined for a constant.
void write_into_base(const Tensor& x, const Tensor& base, const Tensor& value) {
  const Tensor inputs[] = {base, value};
  Tensor written = base;  // the same handle
  const std::shared_ptr<GradMeta> before = base.grad_meta();
  push_record(std::make_shared<WriteNode>(ViewPlace(base, x)), inputs,
              std::span<Tensor>(&written, 1));
  go_on_retaining(before, base);
  x.storage()->buffer->taped_write = x.storage()->changes();
  base.set_current();  // views catch up
}

// What is ordered on the device is not looked at: the host cannot know which kernels write.
void require_over(const std::shared_ptr<WorkState>& work, std::string_view does) {
  CS_REQUIRE(!work || !work->info().waits_for_peers || work->ready(),
             "mark_written: ", work->describe(), " is in flight and ", does,
             " the memory that was written; await it before writing, or get data() after it");
}

void require_unread(const Tensor& x) {
  Buffer& buffer = *x.storage()->buffer;
  if (x.in_flight()) require_over(x.storage()->pending.state(), "fills");
  if (const auto first = buffer.reader.lock()) require_over(first, "reads");
  // A copy: asking issues deferred redistributes, which add to the list.
  if (buffer.more_readers.empty()) return;
  const std::vector<std::weak_ptr<WorkState>> more = buffer.more_readers;
  for (const auto& reader : more) require_over(reader.lock(), "reads");
}

void become(const Tensor& x, std::shared_ptr<GradMeta> meta) {
  x.storage()->buffer->taped_write = x.storage()->changes();
  x.leave_base();
  const std::shared_ptr<GradMeta> before = x.grad_meta();
  x.set_grad_meta(std::move(meta));
  go_on_retaining(before, x);
  x.set_current();
}

}  // namespace

void Tensor::mark_written() const {
  require_unread(*this);
  ++impl_->storage->buffer->writes;
  forget_marks(*this);
  StepGraph* step = StepGraph::recording();
  if (step == nullptr) return;
  step->on_replay([written = std::weak_ptr(impl_->storage->buffer)] {
    const auto buffer = written.lock();
    if (!buffer) return;
    wait_for_readers(*buffer, "capture");
    ++buffer->writes;
  });
}

void Tensor::read_by(const Work& work) const {
  if (!work) return;
  Buffer& buffer = *impl_->storage->buffer;
  if (buffer.reader.expired()) {
    buffer.reader = work.state();
    return;
  }
  // Does not ask whether readers are done, which would issue a deferred redistribute.
  auto& known = buffer.more_readers;
  if (known.size() == known.capacity())
    std::erase_if(known, [](const auto& reader) { return reader.expired(); });
  known.push_back(work.state());
}

void Tensor::wait_for_readers(std::string_view who) const {
  wait_for_readers(*impl_->storage->buffer, who);
}

// If a wait fails, all readers stay listed for the next write.
void Tensor::wait_for_readers(Buffer& buffer, std::string_view who) {
  const auto wait_for = [who](const std::weak_ptr<WorkState>& reader) {
    if (const auto state = reader.lock(); state && !state->ready())
      wait_in_place(*state, who, "what reads it is in flight and ");
  };
  // Copies: waiting issues deferred redistributes, which add to the list.
  const std::weak_ptr<WorkState> first = buffer.reader;
  const std::vector<std::weak_ptr<WorkState>> more = buffer.more_readers;
  wait_for(first);
  for (const auto& reader : more) wait_for(reader);
  buffer.reader.reset();
  buffer.more_readers.clear();
}

void require_may_write(const Tensor& x, std::string_view who) {
  CS_REQUIRE(x.defined(), who, ": the tensor is undefined");
  const bool copied = x.copied_view() && x.unwritable() == kCopiedView;
  CS_REQUIRE(x.unwritable() == nullptr || copied, who, ": ", x, " cannot be changed in place: it ",
             x.unwritable());
  if (copied) require_writable_copy(x, who);
  if (grad_enabled()) require_writable_on_tape(x, who);
}

void require_writable(const Tensor& x, std::string_view who) {
  require_may_write(x, who);
  x.wait(who);
  x.wait_for_readers(who);
}

void require_result_fits(const Tensor& x, const Shape& shape, DType dtype, std::string_view who) {
  CS_REQUIRE(shape == x.shape(), who, ": the result ", dtype, shape, " does not have the shape of ",
             x);
  CS_REQUIRE(can_store(dtype, x.dtype()) || !is_floating(dtype), who, ": the result ", dtype, shape,
             " is floating-point, but ", x, " is not");
}

Tensor unchanged(const Tensor& x) {
  if (!grad_enabled()) return untaped(x);
  return x.requires_grad() && x.numel() > 0 ? view(x, x.shape()) : x;
}

void record_write(const Tensor& x, const Tensor& value) {
  const Tensor base = x.base();
  if (base.defined()) return write_into_base(x, base, value);
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
  if (base.defined()) return write_into_base(x, base, Tensor());
  become(x, nullptr);
}

void catch_up(const Tensor& x) {
  const Tensor base = x.base();
  CS_REQUIRE(base.defined() && base.is_current(), x,
             ": its memory was changed in place on the tape through another handle (detach, "
             "to_local, from_local), which has the gradient; use that one");
  CS_REQUIRE(
      !x.is_untaped_view(), x,
      ": it is a view that was made under a NoGradGuard, and its memory was changed in place "
      "on the tape since");
  x.set_current();
  const std::shared_ptr<GradMeta> before = x.grad_meta();
  x.set_grad_meta(nullptr);
  if (!base.requires_grad()) return;
  const Tensor inputs[] = {base};
  Tensor view = x;
  push_record(make_view_node(ViewPlace(base, x)), inputs, std::span<Tensor>(&view, 1));
  go_on_retaining(before, x);
}

}  // namespace coshard
