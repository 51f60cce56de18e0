#pragma once
// Arrays on a CUDA device (the fake one or a real one) for the kernel tests.
#include <map>
#include <memory>

#include "kernels/cuda/cuda.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels::testing {

// Keeps a device copy of each Data that is put there; get() brings one back. The Data must outlive
// it (a copy is found by the address), so make one for each case.
class OnDevice {
 public:
  OnDevice() {
    CudaOptions options;
    options.poison = true;
    device_ = std::static_pointer_cast<CudaDevice>(make_cuda_device(std::move(options)));
    device_->set_timeout(20'000'000'000);
  }
  CudaDevice& device() { return *device_; }

  // The device's copy of `data`, made at the first call.
  void* put(const Data& data) {
    std::shared_ptr<Buffer>& buffer = copies_[&data];
    if (buffer == nullptr) {
      buffer = device_->make_buffer(bytes_of(data));
      device_->upload(buffer->data(), data.ptr(), bytes_of(data));
    }
    return buffer->data();
  }
  View put(View view, const Data& data) {
    view.data = put(data);
    return view;
  }
  // What the device's copy of `data` holds by now.
  Data get(const Data& data) {
    Data result = data;
    device_->download(result.ptr(), put(data), bytes_of(data));
    return result;
  }
  template <class Args>
  void run(const Args& args) {
    cuda::run(*device_, args);
  }

 private:
  static std::size_t bytes_of(const Data& data) {
    return static_cast<std::size_t>(data.count()) * size_of(data.dtype());
  }
  std::shared_ptr<CudaDevice> device_;
  std::map<const Data*, std::shared_ptr<Buffer>> copies_;
};

}  // namespace coshard::kernels::testing
