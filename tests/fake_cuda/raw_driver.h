#pragma once
// Programs that use the table of CUDA calls directly, without a back end, on a fresh driver.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/device/cuda/api.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {

// to[i] = from[i] + 1
struct RawAddOne : PerElement {
  const float* from;
  float* to;
  std::int64_t count;
  CS_BODY void operator()(Block& block) const {
    if (block.grid_thread() < count) to[block.grid_thread()] = from[block.grid_thread()] + 1;
  }
};

template <class Kernel>
CudaLaunch launch_of(const Kernel& kernel, const char* name, cudaStream_t stream) {
  CudaLaunch call;
  call.name = name;
  call.function = function_of<Kernel>();
  call.kernel = &kernel;
  call.kernel_bytes = sizeof kernel;
  call.blocks = 1;
  call.threads = 32;
  call.uses_barriers = Kernel::kUsesBarriers;
  call.stream = stream;
  return call;
}

// A launch of RawAddOne on 32 floats.
inline cudaError_t add_one(const float* from, float* to, cudaStream_t stream,
                           const char* name = "add one") {
  RawAddOne kernel{};
  kernel.from = from;
  kernel.to = to;
  kernel.count = 32;
  return cuda().Launch(launch_of(kernel, name, stream));
}

class RawDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    driver.set_devices(2);
    driver.reseed(1);
    driver.set_waiting(0);
    ASSERT_EQ(cuda().SetDevice(0), cudaSuccess);
  }
  // Ends what a test leaves behind; complaints that it has not taken are failures.
  void TearDown() override {
    for (int device = 0; device < 2; ++device) {
      EXPECT_EQ(cuda().SetDevice(device), cudaSuccess);
      EXPECT_EQ(cuda().DeviceSynchronize(), cudaSuccess);
    }
    for (cudaStream_t stream : streams_) EXPECT_EQ(cuda().StreamDestroy(stream), cudaSuccess);
    for (void* memory : memory_) EXPECT_EQ(cuda().Free(memory), cudaSuccess);
    EXPECT_EQ(cuda().SetDevice(0), cudaSuccess);
    driver.set_waiting(0.5);
    driver.set_eagerness(0.15);
    driver.set_patience(std::chrono::seconds(20));
  }
  cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cuda().StreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    streams_.push_back(stream);
    return stream;
  }
  float* make_floats() {
    void* data = nullptr;
    EXPECT_EQ(cuda().Malloc(&data, 32 * sizeof(float)), cudaSuccess);
    memory_.push_back(data);
    return static_cast<float*>(data);
  }
  void free_floats(float* data) {
    std::erase(memory_, data);
    EXPECT_EQ(cuda().Free(data), cudaSuccess);
  }

  FakeDriver& driver = FakeDriver::get();

 private:
  std::vector<cudaStream_t> streams_;
  std::vector<void*> memory_;
};

}  // namespace coshard::testing
