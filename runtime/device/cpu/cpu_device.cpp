#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/error.h>
#include "runtime/device/cpu/block_cache.h"
#include "runtime/device/make_device.h"

// Provided by the OpenMP runtime that the kernels link; absent when nothing in the process uses
// OpenMP.
extern "C" __attribute__((weak)) void omp_set_num_threads(int threads);

namespace coshard {
namespace {

// Work runs when it is enqueued, so every event is complete.
class DoneEvent final : public Event {
 public:
  bool query() const override { return true; }
  void synchronize(std::int64_t) override {}
};

class InlineStream final : public Stream {
 public:
  explicit InlineStream(StreamKind kind) : kind_(kind), done_(std::make_shared<DoneEvent>()) {}
  StreamKind kind() const override { return kind_; }
  std::shared_ptr<Event> record() override { return done_; }
  void wait(const Event&) override {}

 private:
  StreamKind kind_;
  std::shared_ptr<Event> done_;
};

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::Cpu; }
  std::string name() const override { return "cpu"; }
  std::unique_ptr<Stream> make_stream(StreamKind kind) override {
    return std::make_unique<InlineStream>(kind);
  }
  Stream& compute_stream() override { return compute_; }
  void* allocate(std::size_t bytes) override { return cache_.take(bytes); }
  void deallocate(void* data, std::size_t bytes,
                  std::span<const std::shared_ptr<Event>>) noexcept override {
    cache_.give(data, bytes);
  }
  void upload(void* to, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, host, bytes);
  }
  void download(void* host, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, from, bytes);
  }
  void synchronize() override {}
  MemoryStats memory() const override { return cache_.stats(); }

 private:
  BlockCache cache_;
  InlineStream compute_{StreamKind::Compute};
};

}  // namespace

std::shared_ptr<Device> make_cpu_device(int threads) {
  CS_REQUIRE(threads >= 1, "a cpu device needs at least 1 thread, got ", threads);
  if (omp_set_num_threads != nullptr) omp_set_num_threads(threads);
  return std::make_shared<CpuDevice>();
}

namespace {

BackendDescription describe_host() {
  DeviceDescription host;
  host.name = "host";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos)
      host.name = line.substr(line.find(": ") + 2);
  host.multiprocessors = static_cast<int>(std::thread::hardware_concurrency());
  const auto pages = [](int which) { return static_cast<std::size_t>(::sysconf(which)); };
  host.memory = pages(_SC_PHYS_PAGES) * pages(_SC_PAGESIZE);
  host.free_memory = pages(_SC_AVPHYS_PAGES) * pages(_SC_PAGESIZE);
  host.peers = {true};
  BackendDescription all;
  all.devices.push_back(std::move(host));
  return all;
}

}  // namespace

extern const DeviceBackend cpu_device_backend;
const DeviceBackend cpu_device_backend = {
    DeviceKind::Cpu, [](const DeviceChoice& choice) { return make_cpu_device(choice.threads); },
    [] { return 1; }, &describe_host};

}  // namespace coshard
