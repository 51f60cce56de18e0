#pragma once
// The time at which a CUDA device has reached an event, by the host's steady clock: measured from a
// reference event whose time the host has seen, within some 10 us. A new reference is taken now and
// then, since the driver gives differences as floats, and the two clocks drift.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace coshard {

class CudaDevice;
class CudaStream;

class CudaClock {
 public:
  // With the device: to create a stream later may wait for kernels.
  explicit CudaClock(CudaDevice& device);
  ~CudaClock();
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;
  // Steady-clock nanoseconds; nullopt: not reached yet, or the device has failed. `event` is of this
  // device and with timing. The first call takes a reference. Any thread.
  std::optional<std::int64_t> time_of(cudaEvent_t event);

 private:
  static constexpr std::int64_t kFresh = 1'000'000'000;  // ns from the reference: within 60 ns
  struct Reference {
    cudaEvent_t event = nullptr;  // null: none yet
    std::int64_t at = 0;
  };
  std::optional<std::int64_t> since_reference(cudaEvent_t event) const;
  void take_reference();

  CudaDevice& device_;
  std::mutex mutex_;
  std::unique_ptr<CudaStream> stream_;  // on which nothing else is queued
  Reference reference_;
};

}  // namespace coshard
