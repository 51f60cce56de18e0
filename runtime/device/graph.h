#pragma once
// Graphs: device work that is recorded instead of executed, then replayed by one call. Recorded
// work uses dedicated memory at fixed addresses, kept as long as the graph or a buffer in it lives.
// Rank's thread.
#include <memory>
#include <string_view>

#include <coshard/runtime/device/device.h>

namespace coshard {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Queues the graph on the compute stream, after all work queued so far on any stream of the
  // device. The graph may be destroyed while in flight.
  virtual void launch() = 0;
};

// While one is alive, work queued on the compute stream is recorded. Another stream's work is
// included once that stream has waited for the compute stream; finish() joins streams that the
// compute stream has not waited for. If destroyed unfinished, the recording is discarded.
class GraphRecording {
 public:
  virtual ~GraphRecording() = default;
  // Error{DeviceFailed}: something was called that cannot be recorded. Call it once.
  virtual std::unique_ptr<DeviceGraph> finish() = 0;
};

// Implemented by a device that can record.
class GraphDevice {
 public:
  // Error{BadInput} while another recording is open; Error{DeviceFailed}.
  virtual std::unique_ptr<GraphRecording> record_graph() = 0;
  virtual bool recording() const = 0;

 protected:
  ~GraphDevice() = default;
};
GraphDevice* graph_device(Device& device);  // null: this device cannot record

// Error{Unsupported} while `device` records: "item: cannot copy to the host within a captured step
// on cuda:0 for matmul at train.cpp:88". `what` is a verb phrase.
void require_not_recording(Device& device, std::string_view who, std::string_view what);

}  // namespace coshard
