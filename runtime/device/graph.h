#pragma once
// Work of a device that is recorded instead of done, and then done again and again by one call: a
// graph. What is recorded uses memory of its own, at addresses that stay, kept as long as the graph
// or a buffer in it lives. Rank's thread.
#include <memory>
#include <string_view>

#include <coshard/runtime/device/device.h>

namespace coshard {

class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Queues all of it on the compute stream, after what any stream of the device has been given so
  // far. May go while it is in flight.
  virtual void launch() = 0;
};

// While one lives, what the device's streams are given is recorded. Work of a stream beside the
// compute stream is part of it once that stream has waited for the compute stream; what it has not
// waited for in turn by the end is joined there. Destroyed unfinished: nothing was recorded.
class GraphRecording {
 public:
  virtual ~GraphRecording() = default;
  // Error{DeviceFailed}: something was called that cannot be recorded. Once.
  virtual std::unique_ptr<DeviceGraph> finish() = 0;
};

// What a device is, too, that can record.
class GraphDevice {
 public:
  // Error{BadInput} while another one lives; Error{DeviceFailed}.
  virtual std::unique_ptr<GraphRecording> record_graph() = 0;
  virtual bool recording() const = 0;

 protected:
  ~GraphDevice() = default;
};
GraphDevice* graph_device(Device& device);  // null: this one does its work where it is enqueued

// Error{Unsupported} while `device` records: "item: cannot give data to the host within a captured
// step on cuda:0 for matmul at train.cpp:88". `what` is a verb.
void require_not_recording(Device& device, std::string_view who, std::string_view what);

}  // namespace coshard
