#include "runtime/device/cuda/graph.h"

#include <algorithm>
#include <utility>

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/api.h"
#include "runtime/device/cuda/check.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/stream.h"

namespace coshard {
namespace {

std::atomic<std::uint64_t> last_recording{0};
thread_local int recordings_here = 0;

// cudaMalloc, which a recording thread may call only in relaxed mode; safe, since the memory exists
// before the graph runs (cuda_runtime_api.h, cudaThreadExchangeStreamCaptureMode).
cudaError_t plain_malloc(void** data, std::size_t bytes) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cuda().ThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t status = cuda().Malloc(data, bytes);
  cuda().ThreadExchangeStreamCaptureMode(&mode);
  return status;
}

}  // namespace

cudaError_t GraphExec::launch(cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  return exec_ == nullptr ? cudaErrorInvalidResourceHandle : cuda().GraphLaunch(exec_, stream);
}

void GraphExec::end() noexcept {
  const std::scoped_lock lock(mutex_);
  if (exec_ != nullptr) log_cuda(cuda().GraphExecDestroy(exec_), "cudaGraphExecDestroy");
  exec_ = nullptr;
}

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(std::shared_ptr<CudaDevice> device, cudaGraphExec_t graph,
            std::shared_ptr<GraphMemory> memory, std::vector<std::shared_ptr<GraphPart>> parts)
      : device_(std::move(device)),
        exec_(std::make_shared<GraphExec>(graph)),
        memory_(std::move(memory)),
        parts_(std::move(parts)) {
    for (const auto& part : parts_) part->recorded(exec_);
  }
  ~CudaGraph() override {
    exec_->end();
    device_->graphs().graph_gone(memory_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch() override {
    allow();
    device_->make_current();
    device_->graphs().join();
    auto* stream = static_cast<cudaStream_t>(device_->compute_stream().native());
    const cudaError_t status = exec_->launch(stream);
    if (status != cudaSuccess) allow();  // throws if a part has just failed
    check_cuda(status, device_->name(), ": cudaGraphLaunch");
    if (parts_.empty()) return;
    const std::shared_ptr<Event> end = device_->compute_stream().record();
    for (const auto& part : parts_) part->launched(end);
  }

 private:
  void allow() {
    for (const auto& part : parts_) part->launches();
  }

  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<GraphExec> exec_;
  std::shared_ptr<GraphMemory> memory_;
  std::vector<std::shared_ptr<GraphPart>> parts_;
};

class CudaRecording final : public GraphRecording {
 public:
  explicit CudaRecording(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {
    device_->make_current();
    // Before the capture, so that memory freed during it, by a peer's thread too, is kept here.
    device_->graphs().begin(number_);
    const cudaError_t status =
        cuda().StreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal);
    if (status != cudaSuccess) device_->graphs().graph_gone(device_->graphs().end());
    check_cuda(status, device_->name(), ": cudaStreamBeginCapture");
    static_cast<CudaStream&>(device_->compute_stream()).take_part(number_);
  }
  ~CudaRecording() override {
    if (finished_) return;
    cudaGraph_t graph = nullptr;
    const cudaError_t status = end(graph);
    if (!succeeded(status)) return;  // already reported: the failure that abandons this recording
    log_cuda(cuda().GraphDestroy(graph), "cudaGraphDestroy");
  }
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;

  std::unique_ptr<DeviceGraph> finish() override {
    device_->check_watched(0);  // hands over what is ready
    device_->graphs().join(number_);
    cudaGraph_t graph = nullptr;
    finished_ = true;
    check_cuda(end(graph), device_->name(), ": cudaStreamEndCapture");
    cudaGraphExec_t ready = nullptr;
    const cudaError_t status = cuda().GraphInstantiate(&ready, graph, 0);
    log_cuda(cuda().GraphDestroy(graph), "cudaGraphDestroy");
    if (!succeeded(status)) device_->graphs().graph_gone(memory_);
    check_cuda(status, device_->name(), ": cudaGraphInstantiate");
    return std::make_unique<CudaGraph>(device_, ready, std::move(memory_),
                                       std::exchange(device_->graphs().parts_, {}));
  }

 private:
  cudaStream_t stream() const {
    return static_cast<cudaStream_t>(device_->compute_stream().native());
  }
  cudaError_t end(cudaGraph_t& graph) {
    const cudaError_t status = cuda().StreamEndCapture(stream(), &graph);
    memory_ = device_->graphs().end();
    if (status != cudaSuccess || !finished_) device_->graphs().graph_gone(memory_);
    return status;
  }

  std::shared_ptr<CudaDevice> device_;
  std::uint64_t number_ = ++last_recording;
  std::shared_ptr<GraphMemory> memory_;
  bool finished_ = false;
};

CudaGraphs::~CudaGraphs() {
  for (const auto& memory : memories_)
    for (const GraphMemory::Chunk& chunk : memory->chunks)
      log_cuda(cuda().Free(chunk.data), "cudaFree");
  free_spare();
}

// Returns what eager steps left cached in the pool, since the recorded step needs it as graph
// memory.
std::unique_ptr<GraphRecording> CudaGraphs::record() {
  CS_REQUIRE(recording() == 0, device_.name(), ": captured steps cannot be nested");
  device_.trim();
  return std::make_unique<CudaRecording>(
      std::static_pointer_cast<CudaDevice>(device_.shared_from_this()));
}

bool CudaGraphs::recording_here() noexcept { return recordings_here > 0; }

void CudaGraphs::begin(std::uint64_t number) {
  parts_.clear();  // of an abandoned recording
  const std::scoped_lock lock(mutex_);
  current_ = std::make_shared<GraphMemory>();
  for (const GraphMemory::Chunk& chunk : std::exchange(spare_, {})) current_->add(chunk);
  memories_.push_back(current_);
  used_ = true;
  recording_ = number;
  ++recordings_here;
}

std::shared_ptr<GraphMemory> CudaGraphs::end() noexcept {
  const std::scoped_lock lock(mutex_);
  recording_ = 0;
  --recordings_here;
  return std::exchange(current_, nullptr);
}

void* CudaGraphs::take(std::size_t bytes, std::string_view label) {
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  if (void* data = current_->take(bytes)) return data;
  void* chunk = nullptr;
  std::size_t size = current_->chunk_for(bytes);
  cudaError_t status = plain_malloc(&chunk, size);
  if (!succeeded(status)) {
    size = GraphMemory::smallest_chunk_for(bytes);
    status = plain_malloc(&chunk, size);
  }
  if (!succeeded(status)) device_.fail_request(bytes, label, sum_of_bytes());
  current_->add({static_cast<char*>(chunk), size});
  return current_->take(bytes);
}

bool CudaGraphs::give(void* data, std::size_t bytes,
                      std::span<const std::shared_ptr<Event>> uses) noexcept {
  if (!used_.load(std::memory_order_relaxed) || data == nullptr) return false;
  const std::scoped_lock lock(mutex_);
  const auto owner =
      std::ranges::find_if(memories_, [data](const auto& memory) { return memory->owns(data); });
  if (owner != memories_.end()) {
    (*owner)->give(data, uses.empty());
    if (!(*owner)->graph_alive && (*owner)->in_use() == 0) retire(**owner);
    return true;
  }
  if (current_ == nullptr) return false;
  current_->outside.push_back({data, bytes, {uses.begin(), uses.end()}});
  return true;
}

void CudaGraphs::free_spare() noexcept {
  const std::scoped_lock lock(mutex_);
  for (const GraphMemory::Chunk& chunk : std::exchange(spare_, {}))
    log_cuda(cuda().Free(chunk.data), "cudaFree");
}

std::size_t CudaGraphs::bytes() const {
  const std::scoped_lock lock(mutex_);
  return sum_of_bytes();
}

std::size_t CudaGraphs::sum_of_bytes() const {
  std::size_t sum = 0;
  for (const auto& memory : memories_) sum += memory->bytes();
  return sum;
}

void CudaGraphs::graph_gone(const std::shared_ptr<GraphMemory>& memory) noexcept {
  std::vector<GraphMemory::Outside> outside;
  {
    const std::scoped_lock lock(mutex_);
    memory->graph_alive = false;
    outside = std::exchange(memory->outside, {});
    if (memory->in_use() == 0) retire(*memory);
  }
  for (const GraphMemory::Outside& kept : outside)
    device_.deallocate(kept.data, kept.bytes, kept.uses);
}

// Under the lock.
void CudaGraphs::retire(GraphMemory& memory) noexcept {
  spare_.insert(spare_.end(), memory.chunks.begin(), memory.chunks.end());
  std::erase_if(memories_, [&](const auto& known) { return known.get() == &memory; });
  used_ = !memories_.empty();
}

void CudaGraphs::add(CudaStream& stream) {
  const std::scoped_lock lock(mutex_);
  streams_.push_back(&stream);
}

void CudaGraphs::remove(CudaStream& stream) {
  const std::scoped_lock lock(mutex_);
  std::erase(streams_, &stream);
}

void CudaGraphs::join(std::uint64_t only) {
  const std::scoped_lock lock(mutex_);
  Stream& compute = device_.compute_stream();
  for (CudaStream* stream : streams_)
    if (stream != &compute && (only == 0 || stream->takes_part(only)))
      compute.wait(*stream->record());
}

}  // namespace coshard
