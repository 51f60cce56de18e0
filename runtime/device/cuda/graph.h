#pragma once
// CUDA graphs of one device: their recording, their memory, and the streams that take part. Capture
// is thread-local (cudaStreamCaptureModeThreadLocal), so that a watchdog thread may query events
// during it. Owned by a CudaDevice; memory may be given back on any thread, everything else is for
// the rank's thread.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>

#include "runtime/device/cuda/graph_memory.h"
#include "runtime/device/graph.h"

namespace coshard {

class CudaDevice;
class CudaStream;

// An executable graph. Any thread.
class GraphExec {
 public:
  explicit GraphExec(cudaGraphExec_t exec) : exec_(exec) {}
  ~GraphExec() { end(); }
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  // cudaErrorInvalidResourceHandle after end().
  cudaError_t launch(cudaStream_t stream);
  // Launches in flight complete (cuda.h, cuGraphExecDestroy). Idempotent.
  void end() noexcept;

 private:
  std::mutex mutex_;
  cudaGraphExec_t exec_;  // null: ended
};

// A contributor of work to a recording, notified of each launch: a communicator.
class GraphPart {
 public:
  // The recording has become `exec`, which the part may end: NCCL cannot release a communicator
  // while a graph holds its work.
  virtual void recorded(const std::shared_ptr<GraphExec>& exec) = 0;
  // Called before each launch; throws if the launch is not allowed.
  virtual void launches() = 0;
  virtual void launched(const std::shared_ptr<Event>& end) = 0;

 protected:
  ~GraphPart() = default;
};

class CudaGraphs {
 public:
  explicit CudaGraphs(CudaDevice& device) : device_(device) {}
  // All work of the device must be complete.
  ~CudaGraphs();
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  // The current recording's number, unique in the process; 0: none.
  std::uint64_t recording() const noexcept { return recording_.load(std::memory_order_relaxed); }
  std::unique_ptr<GraphRecording> record();
  // Whether the calling thread is recording, on any device: it must not query events then.
  static bool recording_here() noexcept;

  // Adds a part to the current recording; the graph keeps it.
  void add(std::shared_ptr<GraphPart> part) { parts_.push_back(std::move(part)); }
  // Only while recording. Error{DeviceFailed} names the request.
  void* take(std::size_t bytes, std::string_view label);
  // True: the memory is a graph's, or the graph being recorded may use it, and this has taken it
  // back.
  bool give(void* data, std::size_t bytes, std::span<const std::shared_ptr<Event>> uses) noexcept;
  std::size_t bytes() const;  // of all graphs
  // Frees chunks that belong to no graph; all queued work must be complete.
  void free_spare() noexcept;

  void add(CudaStream& stream);
  void remove(CudaStream& stream);
  // Makes the compute stream wait for all work queued on the other streams (`only`: on those that
  // take part in that recording; 0: all).
  void join(std::uint64_t only = 0);

 private:
  friend class CudaRecording;
  void begin(std::uint64_t number);
  std::shared_ptr<GraphMemory> end() noexcept;
  friend class CudaGraph;
  void graph_gone(const std::shared_ptr<GraphMemory>& memory) noexcept;
  void retire(GraphMemory& memory) noexcept;
  std::size_t sum_of_bytes() const;  // under the lock, like retire()

  CudaDevice& device_;
  std::vector<std::shared_ptr<GraphPart>> parts_;  // of the current recording; the rank's thread
  std::atomic<std::uint64_t> recording_{0};
  std::atomic<bool> used_{false};  // memories_ is not empty
  mutable std::mutex mutex_;       // guards all below
  std::shared_ptr<GraphMemory> current_;
  std::vector<std::shared_ptr<GraphMemory>> memories_;  // of live graphs, or with pieces in use
  // From destroyed graphs. Not freed, since cudaFree synchronizes the device: the next graph reuses
  // them, and its launches are ordered after theirs.
  std::vector<GraphMemory::Chunk> spare_;
  std::vector<CudaStream*> streams_;
};

}  // namespace coshard
