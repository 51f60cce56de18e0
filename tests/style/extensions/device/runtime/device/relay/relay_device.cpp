#include "runtime/device/make_device.h"

namespace coshard {
namespace {

class RelayDevice final : public Device {
 public:
  explicit RelayDevice(int threads) : inner_(make_cpu_device(threads)) {}
  DeviceKind kind() const override { return DeviceKind("relay"); }
  std::string name() const override { return "relay"; }
  std::unique_ptr<Stream> make_stream(StreamKind kind) override {
    return inner_->make_stream(kind);
  }
  Stream& compute_stream() override { return inner_->compute_stream(); }
  void* allocate(std::size_t bytes) override { return inner_->allocate(bytes); }
  void deallocate(void* data, std::size_t bytes,
                  std::span<const std::shared_ptr<Event>> uses) noexcept override {
    inner_->deallocate(data, bytes, uses);
  }
  void upload(void* to, const void* host, std::size_t bytes) override {
    inner_->upload(to, host, bytes);
  }
  void download(void* host, const void* from, std::size_t bytes) override {
    inner_->download(host, from, bytes);
  }
  void synchronize() override { inner_->synchronize(); }
  MemoryStats memory() const override { return inner_->memory(); }

 private:
  std::shared_ptr<Device> inner_;
};

}  // namespace

extern const DeviceBackend relay_device_backend;
const DeviceBackend relay_device_backend = {
    DeviceKind("relay"),
    [](const DeviceChoice& choice) -> std::shared_ptr<Device> {
      return std::make_shared<RelayDevice>(choice.threads);
    },
    [] { return 1; }, [] { return describe_backend(DeviceKind::Cpu); }};

}  // namespace coshard
