#include <coshard/dtensor/tape/tape.h>

#include <utility>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/tape/grad_mode.h"

namespace coshard {
namespace {

struct Recording {
  bool on = true;
  ReadLog* log = nullptr;
};
const BranchLocal<Recording> recording;
const RankLocal<std::uint64_t> last_sequence;

// Records without owners, queued while one is destroyed, so that chains do not recurse.
thread_local std::vector<std::shared_ptr<GradNode>>* dropped = nullptr;

void drop(std::shared_ptr<GradNode> record) {
  if (dropped != nullptr) return dropped->push_back(std::move(record));
  std::vector<std::shared_ptr<GradNode>> waiting;
  dropped = &waiting;
  record.reset();
  while (!waiting.empty()) {
    record = std::move(waiting.back());
    waiting.pop_back();
    record.reset();
  }
  dropped = nullptr;
}

}  // namespace

GradMeta::~GradMeta() {
  if (producer.use_count() == 1) drop(std::move(producer));
}

bool grad_enabled() { return recording.get().on; }
void set_grad_enabled(bool on) { recording.own().on = on; }
NoGradGuard::NoGradGuard() : before_(grad_enabled()) { set_grad_enabled(false); }
NoGradGuard::~NoGradGuard() { set_grad_enabled(before_); }
RecordGuard::RecordGuard() : before_(grad_enabled()) { set_grad_enabled(true); }
RecordGuard::~RecordGuard() { set_grad_enabled(before_); }

std::uint64_t newest_record() { return *last_sequence; }

bool taped(std::span<const Tensor> inputs) {
  const Recording& now = recording.get();
  if (now.log != nullptr) [[unlikely]]
    for (const Tensor& t : inputs)
      if (t.defined()) now.log->read(t);
  if (!now.on) return false;
  for (const Tensor& t : inputs)
    if (t.defined() && t.requires_grad()) return true;
  return false;
}

void mark_output(const Tensor& tensor, std::shared_ptr<GradNode> producer, int output) {
  auto meta = std::make_shared<GradMeta>();
  meta->requires_grad = true;
  meta->producer = std::move(producer);
  meta->output = output;
  meta->spec = tensor.spec();
  tensor.set_grad_meta(std::move(meta));
}

void push_record(std::shared_ptr<GradNode> record, std::span<const Tensor> inputs,
                 std::span<Tensor> outputs) {
  if (const World* world = World::current(); world && world->observed())
    record->module = world->module();
  record->module_path = RankContext::current().branch().place.module;
  record->inputs.reserve(inputs.size());
  for (const Tensor& t : inputs)  // a view may catch up, which pushes an older record
    record->inputs.push_back(t.defined() && t.requires_grad() ? t.grad_meta() : nullptr);
  record->sequence = ++*last_sequence;
  if (!outputs.empty() && outputs[0].defined()) record->origin = outputs[0].origin();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !is_floating(outputs[i].dtype())) continue;
    mark_output(outputs[i], record, static_cast<int>(i));
  }
}

ReadLog::ReadLog() : since_(newest_record()) {
  Recording& now = recording.own();
  outer_ = std::exchange(now.log, this);
}

void ReadLog::stop() {
  if (std::exchange(stopped_, true)) return;
  Recording& now = recording.own();
  if (now.log == this) now.log = outer_;  // else its branch was given up and is being destroyed
}

bool ReadLog::is_from_before(const Tensor& tensor) const {
  const auto is_old = [&](const Tensor& t) {
    return !t.grad_meta() || !t.grad_meta()->producer ||
           t.grad_meta()->producer->sequence <= since_;
  };
  const Tensor base = tensor.base();
  return is_old(tensor) || (base.defined() && base.is_current() && is_old(base));
}

void ReadLog::read(const Tensor& tensor) {
  if (outer_ != nullptr && !stopped_) outer_->read(tensor);
  const std::shared_ptr<Buffer>& buffer = tensor.storage()->buffer;
  const bool wants = tensor.requires_grad();  // may make an older view catch up
  const std::shared_ptr<GradMeta>& meta = tensor.grad_meta();
  if (wants && is_from_before(tensor) && std::ranges::find(wanted_, meta) == wanted_.end())
    wanted_.push_back(meta);
  if (!known_.insert(buffer.get()).second) return;
  reads_.push_back({buffer, buffer->writes, tensor.local_shape(), tensor.dtype(), tensor.spec()});
}

void ReadLog::forget(const Tensor& tensor) {
  const Buffer* made = tensor.storage()->buffer.get();
  std::erase_if(reads_, [&](const Read& read) { return read.buffer.lock().get() == made; });
}

void ReadLog::require_unchanged(std::string_view who) const {
  for (const Read& read : reads_) {
    const std::shared_ptr<Buffer> buffer = read.buffer.lock();
    if (!buffer || buffer->writes == read.changes) continue;
    const std::string what =
        read.spec ? str_cat(read.dtype, describe(*read.spec)) : str_cat(read.dtype, read.shape);
    fail(ErrorKind::BadInput,
         str_cat(who, ": backward reads ", what,
                 " again, which was changed in place since it was first read"));
  }
}

}  // namespace coshard
