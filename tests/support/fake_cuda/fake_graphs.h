#pragma once
// Stream capture and graphs on the fake driver. Rules: cuda_runtime_api.h (cudaStreamBeginCapture,
// cudaThreadExchangeStreamCaptureMode, cudaStreamEndCapture) and the CUDA programming guide,
// "Creating a Graph Using Stream Capture": work on a captured stream becomes a node after the
// stream's earlier work and what it has waited for; a stream joins by waiting for an event of the
// capture and must be joined in turn; nothing may wait across the capture's boundary; queries of
// captured events and streams, and unsafe calls by the capturing thread, are errors that invalidate
// it. A launch runs the nodes in an order drawn from the seed among all that the graph permits.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device/cuda/api.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {

struct FakeGraph {
  struct Node {
    FakeDriver::Work work;
    // Instead of work: queues it on a stream at each launch.
    std::function<void(FakeDriver::Stream&)> queue;
    std::vector<std::size_t> after;  // nodes
  };
  std::vector<Node> nodes;
};

namespace fake_graphs {

// 0, or the error of a call that this thread must not make now.
int prohibited(const std::string& call);
// Adds work on `stream` as a node of its capture; null: it is not captured.
FakeDriver::OpRef record(FakeDriver::Stream& stream, FakeDriver::Work work,
                         std::function<void(FakeDriver::Stream&)> queue = nullptr);
// cudaStreamWaitEvent for an event recorded as `op`: 0, an error, or kEager: as without a capture.
constexpr int kEager = -2;
int wait(FakeDriver::Stream& stream, const FakeDriver::OpRef& op);
// cudaEventQuery and cudaEventSynchronize of such an event: 0 or the error.
int ask(const FakeDriver::OpRef& op);

void add_calls(CudaApi& api);

}  // namespace fake_graphs
}  // namespace coshard::testing
