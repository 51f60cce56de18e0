#pragma once
// A step that is recorded, and then replayed: the device's graph, and what changes from step to
// step. Numbers that a kernel needs and that change are read from one small block of device memory,
// which the host fills before each launch; state of the host is brought forward by what its owners
// have left here. Rank's thread.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/dtensor/random.h>
#include <coshard/dtensor/tape.h>
#include "runtime/device/graph.h"

namespace coshard {

class StepGraph {
 public:
  // What this rank records now; null: nothing.
  static StepGraph* recording();

  // Records from now on. The inputs that the step reads are copies of these.
  StepGraph(const std::shared_ptr<Device>& device, const std::vector<Tensor>& inputs);
  // Unfinished: gradients of the step, which nothing has computed, are gone.
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  const std::vector<Tensor>& inputs() const { return inputs_; }

  // --- while it is recorded ---
  // Where kernels find these numbers: as `now` is in the step that is recorded, as `next` writes
  // them in each later one. Error{Unsupported}: too many.
  const double* numbers(std::span<const double> now, std::function<void(std::span<double>)> next);
  void on_replay(std::function<void()> advance) { advances_.push_back(std::move(advance)); }
  // Where kernels find {seed, stream}, from which that stream is *stream away now. Null: the number
  // is the same in each step. Error{Unsupported}: a generator of its own (a child of a when_all,
  // another seed).
  const std::uint64_t* random_origin(const RandomState& drawn, std::uint64_t* stream) const;
  // backward is about to add to the gradient of this leaf. Error{Unsupported}: it has one from
  // before the step.
  void meet(const std::shared_ptr<GradMeta>& leaf);
  // From now on the gradient of this leaf is of the step.
  void sets(const std::shared_ptr<GradMeta>& leaf);
  // Error{Unsupported} "who: ..." unless the gradient of `leaf` is of this step.
  void require_met(const std::shared_ptr<GradMeta>& leaf, std::string_view who) const;
  // Ends it. What it gives, and gradients that it leaves, arrive.
  void finish(const Tensor& result);

  // --- then ---
  // The step that was recorded, whose state the host has.
  void launch();
  // The next step. Error{BadInput}: other inputs; what owners of the host's state throw.
  void replay(const std::vector<Tensor>& inputs);
  const Tensor& result() const { return result_; }

 private:
  struct Entry {
    std::size_t first, count;
    std::function<void(std::span<double>)> next;
  };
  static constexpr std::size_t kWords = 512;  // of 8 bytes; the first two are {seed, stream}
  bool knows(const std::shared_ptr<GradMeta>& leaf) const;
  void set_random(const RandomState& state);

  std::shared_ptr<Device> device_;
  std::vector<Tensor> inputs_;
  std::shared_ptr<Buffer> block_;
  std::vector<std::uint64_t> words_;
  std::vector<Entry> entries_;
  std::vector<std::function<void()>> advances_;
  RandomState random_;       // where it begins, in the step that is recorded
  std::uint64_t draws_ = 0;  // how far a step brings it
  std::vector<std::pair<std::shared_ptr<GradMeta>, Tensor>>
      leaves_;  // and their gradients after it
  Tensor result_;
  std::unique_ptr<GraphRecording> recording_;  // null: finished
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace coshard
