#include "dtensor/capture/step_graph.h"

#include <algorithm>
#include <bit>

#include <coshard/runtime/coro/rank_context.h>
#include "dtensor/tensor/local.h"
#include "kernels/run.h"

namespace coshard {
namespace {

struct RecordedHere {
  StepGraph* step = nullptr;
};
const RankLocal<RecordedHere> recorded_here;

[[noreturn]] void refuse(const std::string& text) {
  fail(ErrorKind::Unsupported, str_cat(text, ", which cannot be part of a captured step"));
}

Tensor input_of(const Tensor& given, std::size_t number) {
  CS_REQUIRE(given.defined(), "captured step: input ", number, " is undefined");
  CS_REQUIRE(!given.requires_grad(), "captured step: input ", number, " (", given,
             ") requires a gradient; the step reads a copy of it; pass its detach()");
  return copy_of(given);
}

void copy_input(const Tensor& to, const Tensor& from, std::size_t number) {
  CS_REQUIRE(from.defined() && from.dtype() == to.dtype() && from.shape() == to.shape() &&
                 from.spec() == to.spec() && from.local_shape() == to.local_shape(),
             "captured step: input ", number, " is ", from, ", but it was recorded with ", to);
  CS_REQUIRE(!from.requires_grad(), "captured step: input ", number, " (", from,
             ") requires a gradient; the step reads a copy of it; pass its detach()");
  if (to.local_numel() > 0) kernels::run(*to.device(), kernels::Copy{view_of(to), view_of(from)});
}

}  // namespace

StepGraph* StepGraph::recording() { return recorded_here->step; }

StepGraph::StepGraph(const std::shared_ptr<Device>& device, const std::vector<Tensor>& inputs)
    : device_(device), words_(2), random_(random_state()) {
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs_.push_back(input_of(inputs[i], i));
  block_ = device_->make_buffer(kWords * sizeof(std::uint64_t));
  set_random(random_);
  recording_ = graph_device(*device_)->record_graph();
  recorded_here->step = this;
}

StepGraph::~StepGraph() {
  if (recording() == this) recorded_here->step = nullptr;
  if (recording_ == nullptr) return;
  for (const auto& known : leaves_) known.first->gradient = Tensor();
}

void StepGraph::set_random(const RandomState& state) {
  words_[0] = state.seed;
  words_[1] = state.next_stream;
}

const double* StepGraph::numbers(std::span<const double> now,
                                 std::function<void(std::span<double>)> next) {
  const std::size_t first = words_.size();
  if (first + now.size() > kWords)
    refuse(str_cat("more than ", kWords, " values that change from step to step"));
  for (const double number : now) words_.push_back(std::bit_cast<std::uint64_t>(number));
  entries_.push_back({first, now.size(), std::move(next)});
  return static_cast<const double*>(block_->data()) + first;
}

const std::uint64_t* StepGraph::random_origin(const RandomState& drawn,
                                              std::uint64_t* stream) const {
  if (drawn.seed != random_.seed)
    refuse("random numbers of another seed (manual_seed, or a child of a when_all)");
  // Drawn before the step, by a forward whose backward is part of it: the same draws each time.
  if (drawn.next_stream < random_.next_stream) return nullptr;
  *stream = drawn.next_stream - random_.next_stream;
  return static_cast<const std::uint64_t*>(block_->data());
}

bool StepGraph::knows(const std::shared_ptr<GradMeta>& leaf) const {
  return std::ranges::any_of(leaves_, [&](const auto& known) { return known.first == leaf; });
}

void StepGraph::sets(const std::shared_ptr<GradMeta>& leaf) {
  if (!knows(leaf)) leaves_.emplace_back(leaf, Tensor());
}

void StepGraph::meet(const std::shared_ptr<GradMeta>& leaf) {
  if (knows(leaf)) return;
  if (leaf->gradient.defined())
    refuse(str_cat("backward: adding to a gradient from before the step (", leaf->gradient,
                   "; zero_grad at its end)"));
  leaves_.emplace_back(leaf, Tensor());
}

void StepGraph::require_met(const std::shared_ptr<GradMeta>& leaf, std::string_view who) const {
  if (!knows(leaf))
    refuse(str_cat(who, ": a gradient from before the step (", leaf->gradient, ")"));
}

void StepGraph::finish(const Tensor& result) {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].storage()->changes() != 0)
      fail(ErrorKind::Unsupported,
           str_cat("captured step: the body writes input ", i, " (", inputs_[i],
                   ") in place; a recorded step has only a copy of it"));
  if (result.defined()) {
    result.wait("captured step");
    result_ = result.detach();
  }
  for (auto& [leaf, gradient] : leaves_) {
    gradient = leaf->gradient;
    if (gradient.defined()) gradient.wait("captured step");
  }
  const RandomState after = random_state();
  if (after.seed != random_.seed || after.next_stream < random_.next_stream) refuse("manual_seed");
  draws_ = after.next_stream - random_.next_stream;
  recorded_here->step = nullptr;
  graph_ = recording_->finish();
  recording_ = nullptr;
}

void StepGraph::launch() {
  device_->upload(block_->data(), words_.data(), words_.size() * sizeof(std::uint64_t));
  graph_->launch();
}

void StepGraph::replay(const std::vector<Tensor>& inputs) {
  CS_REQUIRE(inputs.size() == inputs_.size(), "captured step: ", inputs.size(),
             " inputs, but it was recorded with ", inputs_.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) copy_input(inputs_[i], inputs[i], i);
  const RandomState now = random_state();
  set_random(now);
  for (const Entry& entry : entries_) {
    std::vector<double> numbers(entry.count);
    entry.next(numbers);
    for (std::size_t i = 0; i < entry.count; ++i)
      words_[entry.first + i] = std::bit_cast<std::uint64_t>(numbers[i]);
  }
  for (const auto& advance : advances_) advance();
  launch();
  set_random_state({now.seed, now.next_stream + draws_, now.local});
  for (const auto& [leaf, gradient] : leaves_) leaf->gradient = gradient;
}

}  // namespace coshard
