#pragma once
// The time at which a CUDA device has reached an event, by the host's steady clock: measured from a
// reference event whose time the host has seen, within some 10 us. A new reference is taken now and
// then, since the driver gives differences as floats, and the two clocks drift.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

namespace coshard {

class CudaDevice;

class CudaClock {
 public:
  // With the device: to create a stream later may wait for kernels.
  explicit CudaClock(CudaDevice& device);
  ~CudaClock();
  CudaClock(const CudaClock&) = delete;
  CudaClock& operator=(const CudaClock&) = delete;
  // Steady-clock nanoseconds; nullopt: not reached yet, the device has failed, or it has had no
  // time for a reference. `event` is of this device and with timing. Any thread.
  std::optional<std::int64_t> time_of(cudaEvent_t event);

 private:
  static constexpr std::int64_t kFresh = 1'000'000'000;  // ns that a reference serves
  static constexpr std::int64_t kPause = 100'000'000;    // between attempts
  struct Reference {
    cudaEvent_t event = nullptr;  // null: none yet
    std::int64_t at = 0;
  };
  struct Destroy {
    void operator()(cudaStream_t stream) const;
  };
  void take_reference();
  void renew();

  CudaDevice& device_;
  std::mutex mutex_;
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;  // for nothing else
  Reference reference_;
  std::int64_t tried_ns_ = 0;
};

}  // namespace coshard
