#include "tests/support/fake_cuda/fake_graphs.h"

#include <algorithm>
#include <array>
#include <set>
#include <thread>
#include <utility>

namespace coshard::testing {

// One capture. Streams and events may refer to it after it has ended.
struct FakeCapture {
  FakeGraph graph;
  FakeDriver::Stream* origin = nullptr;
  std::set<FakeDriver::Stream*> streams;
  std::thread::id thread;
  cudaStreamCaptureMode mode{};
  bool spoilt = false, over = false;
};

namespace fake_graphs {
namespace {

using Capture = std::shared_ptr<FakeCapture>;

FakeDriver& driver() { return FakeDriver::get(); }

std::vector<Capture>& captures() {  // the active ones; under the driver's lock
  static auto* all = new std::vector<Capture>();
  return *all;
}
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// Counts the call; returns from the function if a fault requires it.
#define GRAPH_ENTER(name)                                 \
  if (const int fault = driver().enter(name); fault != 0) \
  return static_cast<cudaError_t>(fault == FakeDriver::kSkip ? 0 : fault)

cudaError_t spoil(FakeCapture& capture, cudaError_t why) {
  capture.spoilt = true;
  return why;
}

// "Potentially unsafe": calls that wait for the device or bypass streams. cudaEventQuery: the
// watchdog of pytorch#104728 invalidated captures in global mode.
bool unsafe(const std::string& call) {
  static const std::set<std::string> calls = {"Malloc",
                                              "Free",
                                              "HostAlloc",
                                              "FreeHost",
                                              "EventQuery",
                                              "MallocFromPoolAsync",
                                              "StreamQuery",
                                              "StreamSynchronize",
                                              "DeviceSynchronize",
                                              "ncclMemAlloc",
                                              "ncclMemFree",
                                              "FreeAsync"};
  return calls.contains(call);
}

// Marks the node and all before it.
void mark(const FakeGraph& graph, std::size_t last, std::vector<bool>& seen) {
  std::vector<std::size_t> open = {last};
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (seen[node]) continue;
    seen[node] = true;
    open.insert(open.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
}

// Whether the origin stream comes after all work of the others.
bool joined(const FakeCapture& capture) {
  std::vector<bool> seen(capture.graph.nodes.size());
  for (const std::size_t last : capture.origin->tail) mark(capture.graph, last, seen);
  return std::ranges::all_of(capture.streams, [&](const FakeDriver::Stream* stream) {
    return std::ranges::all_of(stream->tail, [&](std::size_t node) { return seen[node]; });
  });
}

void end(const Capture& capture) {
  capture->over = true;
  for (FakeDriver::Stream* stream : capture->streams) {
    stream->capture = nullptr;
    stream->tail.clear();
  }
  std::erase(captures(), capture);
}

// --- the functions of the table ---

cudaError_t begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  GRAPH_ENTER("StreamBeginCapture");
  const auto held = driver().lock();
  if (handle == nullptr) return cudaErrorStreamCaptureUnsupported;  // the legacy stream
  FakeDriver::Stream& stream = driver().stream(handle);
  if (stream.capture != nullptr) return cudaErrorIllegalState;
  const auto capture = std::make_shared<FakeCapture>();
  capture->origin = &stream;
  capture->streams = {&stream};
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  stream.capture = capture;
  captures().push_back(capture);
  return cudaSuccess;
}

cudaError_t end_capture(cudaStream_t handle, cudaGraph_t* graph) {
  GRAPH_ENTER("StreamEndCapture");
  const auto held = driver().lock();
  *graph = nullptr;
  const Capture capture = driver().stream(handle).capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &driver().stream(handle))
    return spoil(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const bool whole = joined(*capture);
  end(capture);
  FakeGraph recorded = std::exchange(capture->graph, {});
  if (capture->spoilt) return cudaErrorStreamCaptureInvalidated;
  if (!whole) return cudaErrorStreamCaptureUnjoined;
  *graph = reinterpret_cast<cudaGraph_t>(new FakeGraph(std::move(recorded)));
  return cudaSuccess;
}

cudaError_t exchange_mode(cudaStreamCaptureMode* mode) {
  GRAPH_ENTER("ThreadExchangeStreamCaptureMode");
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

// An executable graph. Its nodes run on a few streams of its own: those of one stream in the order
// in which they were recorded, which the graph permits.
struct FakeExec {
  FakeGraph graph;
  std::array<FakeDriver::Stream*, 4> streams{};
};

cudaError_t instantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  GRAPH_ENTER("GraphInstantiate");
  auto* made = new FakeExec{*reinterpret_cast<FakeGraph*>(graph), {}};
  for (auto*& stream : made->streams)
    stream = driver().make_stream(FakeDriver::current_device(), 0);
  *exec = reinterpret_cast<cudaGraphExec_t>(made);
  return cudaSuccess;
}

cudaError_t destroy_graph(cudaGraph_t graph) {
  GRAPH_ENTER("GraphDestroy");
  delete reinterpret_cast<FakeGraph*>(graph);
  return cudaSuccess;
}

// cuda.h, cuGraphExecDestroy: it does not end launches in flight.
cudaError_t destroy_exec(cudaGraphExec_t exec) {
  GRAPH_ENTER("GraphExecDestroy");
  auto* gone = reinterpret_cast<FakeExec*>(exec);
  for (FakeDriver::Stream* stream : gone->streams) driver().destroy(*stream);
  delete gone;
  return cudaSuccess;
}

cudaError_t launch_graph(cudaGraphExec_t exec, cudaStream_t handle) {
  GRAPH_ENTER("GraphLaunch");
  const auto held = driver().lock();
  FakeDriver::Stream& stream = driver().stream(handle);
  if (stream.capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  if (stream.device != FakeDriver::current_device()) return cudaErrorInvalidResourceHandle;
  auto& ready = *reinterpret_cast<FakeExec*>(exec);
  const FakeDriver::OpRef begin = driver().enqueue(stream, FakeDriver::Work());
  std::vector<FakeDriver::OpRef> done;
  for (const FakeGraph::Node& node : ready.graph.nodes) {
    FakeDriver::Stream& on = *ready.streams[driver().draw() % ready.streams.size()];
    FakeDriver::Op op;
    op.after = {begin};
    for (const std::size_t before : node.after) op.after.push_back(done[before]);
    op.work = node.work;
    done.push_back(driver().enqueue(on, std::move(op)));
    if (!node.queue) continue;
    node.queue(on);
    done.back() = driver().enqueue(on, FakeDriver::Work());
  }
  FakeDriver::Op all;
  all.after = done;
  driver().enqueue(stream, std::move(all));
  return cudaSuccess;
}

}  // namespace

int prohibited(const std::string& call) {
  if (thread_mode == cudaStreamCaptureModeRelaxed || !unsafe(call)) return 0;
  const auto held = driver().lock();
  int error = 0;
  for (const Capture& capture : captures()) {
    const bool own = capture->thread == std::this_thread::get_id() &&
                     capture->mode != cudaStreamCaptureModeRelaxed;
    const bool everywhere =
        thread_mode == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (own || everywhere) error = spoil(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return error;
}

FakeDriver::OpRef record(FakeDriver::Stream& stream, FakeDriver::Work work,
                         std::function<void(FakeDriver::Stream&)> queue) {
  const Capture capture = stream.capture;
  if (capture == nullptr) return nullptr;
  auto& nodes = capture->graph.nodes;
  nodes.push_back({std::move(work), std::move(queue), std::exchange(stream.tail, {nodes.size()})});
  auto op = std::make_shared<FakeDriver::Op>();
  op->stream = &stream;
  op->capture = capture;
  op->node = nodes.size() - 1;
  return op;
}

int wait(FakeDriver::Stream& stream, const FakeDriver::OpRef& op) {
  const auto held = driver().lock();
  if (op->capture == nullptr && stream.capture == nullptr) return kEager;
  if (op->capture == nullptr) return spoil(*stream.capture, cudaErrorStreamCaptureIsolation);
  if (op->capture->over) return cudaErrorCapturedEvent;
  if (stream.capture != nullptr && stream.capture != op->capture) {
    spoil(*op->capture, cudaErrorStreamCaptureMerge);
    return spoil(*stream.capture, cudaErrorStreamCaptureMerge);
  }
  stream.capture = op->capture;
  stream.capture->streams.insert(&stream);
  stream.tail.push_back(op->node);
  return 0;
}

int ask(const FakeDriver::OpRef& op) {
  if (op->capture == nullptr) return 0;
  const auto held = driver().lock();
  return spoil(*op->capture, cudaErrorCapturedEvent);
}

void add_calls(CudaApi& api) {
  api.GraphDestroy = destroy_graph;
  api.GraphExecDestroy = destroy_exec;
  api.GraphInstantiate = instantiate;
  api.GraphLaunch = launch_graph;
  api.StreamBeginCapture = begin_capture;
  api.StreamEndCapture = end_capture;
  api.ThreadExchangeStreamCaptureMode = exchange_mode;
}

}  // namespace fake_graphs
}  // namespace coshard::testing
