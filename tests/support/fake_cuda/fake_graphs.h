#pragma once
// Stream capture and graphs on the fake driver. Rules: cuda_runtime_api.h (cudaStreamBeginCapture,
// cudaThreadExchangeStreamCaptureMode, cudaStreamEndCapture) and the CUDA programming guide,
// "Creating a Graph Using Stream Capture": what a captured stream is given becomes a node after
// what it was given before and what it has waited for; a stream joins by waiting for an event of
// the capture and has to be joined in turn; nothing may wait across its border; asking about
// captured events and streams, and unsafe calls of the capturing thread, are errors that spoil it.
// A launch runs the nodes in an order drawn from the seed among all that the graph permits.
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
    // In place of work: queues it on a stream, at each launch.
    std::function<void(FakeDriver::Stream&)> queue;
    std::vector<std::size_t> after;  // nodes
  };
  std::vector<Node> nodes;
};

namespace fake_graphs {

// 0, or the status of a call that this thread may not make now.
int prohibited(const std::string& call);
// What `stream` is given becomes a node of its capture; null: it is not captured.
FakeDriver::OpRef record(FakeDriver::Stream& stream, FakeDriver::Work work,
                         std::function<void(FakeDriver::Stream&)> queue = nullptr);
// cudaStreamWaitEvent for an event that `op` is: 0, an error, or kEager: as between streams that
// nobody captures.
constexpr int kEager = -2;
int wait(FakeDriver::Stream& stream, const FakeDriver::OpRef& op);
// cudaEventQuery and cudaEventSynchronize of such an event: 0 or the error.
int ask(const FakeDriver::OpRef& op);

void add_calls(CudaApi& api);

}  // namespace fake_graphs
}  // namespace coshard::testing
