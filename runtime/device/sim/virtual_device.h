#pragma once
// The device `sim` without data: memory is counted and never touched, kernels only advance the
// clock of their stream. For performance forecasts: the real program runs on it, on shapes alone.
// The host takes no time. Not the deterministic simulation of coshard/runtime/launch/simulate.h,
// whose ranks have data. One thread.
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <coshard/runtime/device/device.h>
#include "runtime/device/sim/processor_model.h"
#include "runtime/device/sim/shared_link.h"

namespace coshard {

inline constexpr DeviceKind kSimDevice{"sim"};

// A point in virtual time: known, or the completion of a transfer.
class VirtualEvent final : public Event {
 public:
  VirtualEvent(const void* stream, std::int64_t time) : stream_(stream), time_(time) {}
  VirtualEvent(const void* stream, std::shared_ptr<SharedLink> link,
               std::shared_ptr<Transfer> transfer)
      : stream_(stream), link_(std::move(link)), transfer_(std::move(transfer)) {}
  bool query() const override { return true; }  // the host takes no time: always late
  void synchronize(std::int64_t) override {}
  const void* stream() const override { return stream_; }
  // Nothing may be issued before the returned time afterwards.
  std::int64_t time() const;
  // Whether it is complete at `now`; nothing may be issued before `now` afterwards.
  bool over_at(std::int64_t now) const;

 private:
  const void* stream_;
  std::int64_t time_ = 0;
  std::shared_ptr<SharedLink> link_;
  std::shared_ptr<Transfer> transfer_;
};

class VirtualStream final : public Stream {
 public:
  explicit VirtualStream(StreamKind kind) : kind_(kind) {}
  StreamKind kind() const override { return kind_; }
  std::shared_ptr<Event> record() override { return std::make_shared<VirtualEvent>(this, now); }
  void wait(const Event& event) override {
    wait_until(static_cast<const VirtualEvent&>(event).time());
  }
  // Error{BadInput} beyond kLongestNs.
  void wait_until(std::int64_t time);

  std::int64_t now = 0;  // virtual ns: when the work queued so far completes

 private:
  StreamKind kind_;
};

class VirtualDevice final : public Device {
 public:
  explicit VirtualDevice(ProcessorModel model) : model_(std::move(model)) {}
  DeviceKind kind() const override { return kSimDevice; }
  std::string name() const override { return "sim"; }
  std::unique_ptr<Stream> make_stream(StreamKind kind) override {
    return std::make_unique<VirtualStream>(kind);
  }
  VirtualStream& compute_stream() override { return compute_; }
  void* allocate(std::size_t bytes) override;  // Error{BadInput} beyond kMostBytes
  // Counted as in use until the compute stream's clock is past all `uses`.
  void deallocate(void* data, std::size_t bytes,
                  std::span<const std::shared_ptr<Event>> uses) noexcept override;
  void upload(void*, const void*, std::size_t) override {}
  // Error{Unsupported} unless a Stub is alive: the data were never computed.
  void download(void* host, const void* from, std::size_t bytes) override;
  void synchronize() override { ++host_waits_; }
  MemoryStats memory() const override { return memory_; }
  void reset_peak() { memory_.peak = memory_.in_use; }

  void run(const KernelWork& work);
  const ProcessorModel& model() const { return model_; }
  // Called for each kernel, with virtual ns.
  std::function<void(const KernelWork&, std::int64_t begin, std::int64_t end)> on_kernel;

  // While alive, the host reads `value` wherever it reads a number from the device.
  class Stub {
   public:
    Stub(Device& device, double value);
    ~Stub() { device_.stub_.reset(); }
    Stub(const Stub&) = delete;
    Stub& operator=(const Stub&) = delete;

   private:
    VirtualDevice& device_;
  };

 private:
  struct Freed {
    std::size_t bytes;
    std::vector<std::shared_ptr<Event>> uses;
  };
  void reclaim();

  ProcessorModel model_;
  VirtualStream compute_{StreamKind::Compute};
  MemoryStats memory_;
  std::uintptr_t next_ = std::uintptr_t{1} << 56;  // not a valid address in any process
  std::vector<Freed> freed_;
  std::optional<double> stub_;
};

}  // namespace coshard
