#pragma once
// Memory into which the next operator may write its output, such as a gradient's slot in a bucket.
// Rank's thread.
#include <coshard/dtensor/tensor/tensor.h>

namespace coshard {

// While one is alive, the first output with the same number of elements, dtype and device is
// written to `memory` (row-major; undefined: nowhere) instead of to new memory.
class OutputPlace {
 public:
  explicit OutputPlace(Tensor memory);
  ~OutputPlace();
  OutputPlace(const OutputPlace&) = delete;
  OutputPlace& operator=(const OutputPlace&) = delete;

  // Takes the memory if it fits, as a row-major tensor of this shape; else returns undefined.
  static Tensor take(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype);

 private:
  Tensor outer_;
};

}  // namespace coshard
