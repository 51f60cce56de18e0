#pragma once
// CUDA graphs of one device: what records them, their memory, and the streams that take part. The
// capture is of mode thread-local (cudaStreamCaptureModeThreadLocal), so that a watchdog thread may
// ask about events meanwhile. Owned by a CudaDevice; memory may be given back on any thread, the
// rest is for the rank's thread.
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

// What can be launched again and again. Any thread.
class GraphExec {
 public:
  explicit GraphExec(cudaGraphExec_t exec) : exec_(exec) {}
  ~GraphExec() { end(); }
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  // cudaErrorInvalidResourceHandle of one that has been ended.
  cudaError_t launch(cudaStream_t stream);
  // What is in flight goes on (cuda.h, cuGraphExecDestroy). Idempotent.
  void end() noexcept;

 private:
  std::mutex mutex_;
  cudaGraphExec_t exec_;  // null: ended
};

// Who has put work into a recording and answers for it in each launch: a communicator.
class GraphPart {
 public:
  // The recording has become that. Whoever answers for it may end it: NCCL gives up no communicator
  // while a graph has its work.
  virtual void recorded(const std::shared_ptr<GraphExec>& exec) = 0;
  // Before each launch; throws what forbids it.
  virtual void launches() = 0;
  virtual void launched(const std::shared_ptr<Event>& end) = 0;

 protected:
  ~GraphPart() = default;
};

class CudaGraphs {
 public:
  explicit CudaGraphs(CudaDevice& device) : device_(device) {}
  // The device has done all its work by now.
  ~CudaGraphs();
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  // A number that no other recording of the process has; 0: nothing is recorded.
  std::uint64_t recording() const noexcept { return recording_.load(std::memory_order_relaxed); }
  std::unique_ptr<GraphRecording> record();
  // Whether the calling thread records, on whichever device: then it may ask about no event.
  static bool recording_here() noexcept;

  // Of what is recorded now; kept by the graph.
  void add(std::shared_ptr<GraphPart> part) { parts_.push_back(std::move(part)); }
  // While something is recorded. Error{DeviceFailed} names the request.
  void* take(std::size_t bytes, std::string_view label);
  // Whether the memory was a graph's, or may be used by one: then that is all there is to do.
  bool give(void* data, std::size_t bytes, std::span<const std::shared_ptr<Event>> uses) noexcept;
  std::size_t bytes() const;  // of all graphs
  // Frees what no graph has; the device has done all that was queued.
  void free_spare() noexcept;

  void add(CudaStream& stream);
  void remove(CudaStream& stream);
  // The compute stream waits for what all others have been given (`only`: those that take part in
  // that recording; 0: all).
  void join(std::uint64_t only = 0);

 private:
  friend class CudaRecording;
  void begin(std::uint64_t number);
  std::shared_ptr<GraphMemory> end() noexcept;
  friend class CudaGraph;
  void graph_gone(const std::shared_ptr<GraphMemory>& memory) noexcept;
  void retire(GraphMemory& memory) noexcept;
  std::size_t sum_of_bytes() const;  // under the lock, as retire() is

  CudaDevice& device_;
  std::vector<std::shared_ptr<GraphPart>> parts_;  // of what is recorded; the rank's thread
  std::atomic<std::uint64_t> recording_{0};
  std::atomic<bool> used_{false};  // there is something in memories_
  mutable std::mutex mutex_;       // all below
  std::shared_ptr<GraphMemory> current_;
  std::vector<std::shared_ptr<GraphMemory>> memories_;  // of graphs, and with pieces still out
  // Of graphs that are gone. Not freed, since cudaFree waits for the device: the next graph takes
  // them; its launches come after theirs.
  std::vector<GraphMemory::Chunk> spare_;
  std::vector<CudaStream*> streams_;
};

}  // namespace coshard
