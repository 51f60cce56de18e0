#pragma once
// A step that is recorded and then replayed: the device's graph, and what changes from step to
// step. Changing numbers that kernels need are read from a small block of device memory, which the
// host fills before each launch; host state is advanced by callbacks that its owners register here.
// Rank's thread.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <coshard/dtensor/tape/tape.h>
#include <coshard/dtensor/tensor/generator.h>
#include "runtime/device/graph.h"

namespace coshard {

class StepGraph {
 public:
  // The step that this rank is recording; null if none.
  static StepGraph* recording();

  // Starts recording. The step reads copies of these inputs.
  StepGraph(const std::shared_ptr<Device>& device, const std::vector<Tensor>& inputs);
  // If unfinished: the step's gradients, which nothing has computed, are dropped.
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  const std::vector<Tensor>& inputs() const { return inputs_; }

  // --- while recording ---

  // Device memory from which kernels read these numbers: `now` in the recorded step, what `next`
  // writes in each later one. Error{Unsupported}: too many.
  const double* numbers(std::span<const double> now, std::function<void(std::span<double>)> next);
  void on_replay(std::function<void()> advance) { advances_.push_back(std::move(advance)); }
  // Device memory from which kernels read {seed, stream}; theirs is *stream streams further. Null:
  // the draws are the same in each step. Error{Unsupported}: another generator (a child of a
  // when_all, another seed).
  const std::uint64_t* random_origin(const RandomState& drawn, std::uint64_t* stream) const;
  // backward is about to add to this leaf's gradient. Error{Unsupported}: it has one from before
  // the step.
  void meet(const std::shared_ptr<GradMeta>& leaf);
  // From now on this leaf's gradient belongs to the step.
  void sets(const std::shared_ptr<GradMeta>& leaf);
  // Error{Unsupported} "who: ..." unless the gradient of `leaf` belongs to this step.
  void require_met(const std::shared_ptr<GradMeta>& leaf, std::string_view who) const;
  // Ends the recording. Waits until its result, and gradients it leaves behind, have arrived.
  void finish(const Tensor& result);

  // --- afterwards ---

  // Runs the recorded step itself, whose host state is already up to date.
  void launch();
  // Runs the next step. Error{BadInput}: different inputs; also what owners of host state throw.
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
  RandomState random_;       // at the start of the recorded step
  std::uint64_t draws_ = 0;  // how many streams a step consumes
  std::vector<std::pair<std::shared_ptr<GradMeta>, Tensor>>
      leaves_;  // and their gradients after it
  Tensor result_;
  std::unique_ptr<GraphRecording> recording_;  // null: finished
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace coshard
