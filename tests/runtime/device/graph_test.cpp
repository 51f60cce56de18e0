// Devices that record, and what is refused meanwhile.
#include <gtest/gtest.h>

#include <stdexcept>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>
#include "runtime/device/graph.h"

namespace coshard {
namespace {

// A cpu that says that it records.
class Recorder final : public Device, public GraphDevice {
 public:
  DeviceKind kind() const override { return DeviceKind::Cpu; }
  std::string name() const override { return "recorder:1"; }
  std::unique_ptr<Stream> make_stream(StreamKind) override { return nullptr; }
  Stream& compute_stream() override { throw std::logic_error("no stream"); }
  void* allocate(std::size_t) override { return nullptr; }
  void deallocate(void*, std::size_t, std::span<const std::shared_ptr<Event>>) noexcept override {}
  void upload(void*, const void*, std::size_t) override {}
  void download(void*, const void*, std::size_t) override {}
  void synchronize() override {}
  MemoryStats memory() const override { return {}; }
  std::unique_ptr<GraphRecording> record_graph() override { return nullptr; }
  bool recording() const override { return records; }
  bool records = false;
};

TEST(GraphOf, ADeviceThatDoesNotRecordRefusesNothing) {
  const std::shared_ptr<Device> cpu = make_cpu_device(1);
  EXPECT_EQ(graph_device(*cpu), nullptr);
  EXPECT_NO_THROW(require_not_recording(*cpu, "item", "read"));
  Recorder idle;
  EXPECT_EQ(graph_device(idle), &idle);
  EXPECT_NO_THROW(require_not_recording(idle, "item", "read"));
}

TEST(GraphOf, WhileItRecordsTheRefusalNamesWhoWhatAndForWhichOperator) {
  Recorder device;
  device.records = true;
  Branch::current().place.operation = "matmul";
  Branch::current().place.module = "layers.0";
  std::string text;
  try {
    require_not_recording(device, "item", "read");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Unsupported);
    text = error.what();
  }
  Branch::current().place = {};
  for (const char* part : {"item", "read", "recorder:1", "matmul", "layers.0"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace coshard
