#pragma once
// A CUDA device on the fake driver for one test, and success counts over many seeds.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/cuda/launch.h"
#include "tests/support/errors.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {

inline std::shared_ptr<CudaDevice> fake_device(CudaOptions options = {}) {
  auto device = std::static_pointer_cast<CudaDevice>(make_cuda_device(std::move(options)));
  device->set_timeout(5'000'000'000);
  return device;
}

// For how many of `seeds` orders the body returns true.
inline int right_of(int seeds, const std::function<bool()>& body) {
  int right = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    FakeDriver::get().reseed(static_cast<std::uint64_t>(seed));
    right += body() ? 1 : 0;
  }
  return right;
}

struct Numbers {
  explicit Numbers(CudaDevice& device, std::size_t count)
      : count(count), buffer(device.make_buffer(count * sizeof(float))) {}
  float* data() const { return static_cast<float*>(buffer->data()); }
  void set(const std::vector<float>& values) const {
    buffer->device()->upload(data(), values.data(), count * sizeof(float));
  }
  std::vector<float> get() const {
    std::vector<float> values(count);
    buffer->device()->download(values.data(), data(), count * sizeof(float));
    return values;
  }
  std::size_t count;
  std::shared_ptr<Buffer> buffer;
};

// As many devices as a test needs, one for each rank as NCCL wants it; others count on two.
class Devices {
 public:
  explicit Devices(int count) { FakeDriver::get().set_devices(count); }
  ~Devices() { FakeDriver::get().set_devices(2); }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
};

// to[i] = from[i] + 1
struct AddOne : PerElement {
  const float* from;
  float* to;
  std::int64_t count;
  CS_BODY void operator()(Block& block) const {
    for (std::int64_t i = block.grid_thread(); i < count; i += block.grid_threads())
      to[i] = from[i] + 1;
  }
};

inline void add_one(CudaDevice& device, const float* from, float* to, std::size_t count,
                    Stream& stream) {
  AddOne kernel{};
  kernel.from = from;
  kernel.to = to;
  kernel.count = static_cast<std::int64_t>(count);
  launch(device, "add one", kernel, 1, 32, 0, stream.native());
}

}  // namespace coshard::testing
