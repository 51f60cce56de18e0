#pragma once
// Memory in which the next operator may put its output, such as a gradient's place in a bucket.
// Rank's thread.
#include <coshard/dtensor/tensor.h>

namespace coshard {

// While one is alive, the first output of as many elements, of this dtype and on this device is
// written to `memory` (row-major; undefined: nowhere) instead of to new memory.
class OutputPlace {
 public:
  explicit OutputPlace(Tensor memory);
  ~OutputPlace();
  OutputPlace(const OutputPlace&) = delete;
  OutputPlace& operator=(const OutputPlace&) = delete;

  // The place as a row-major tensor of this shape, if there is one that fits; it is taken then.
  static Tensor take(const std::shared_ptr<Device>& device, const Shape& shape, DType dtype);

 private:
  Tensor outer_;
};

}  // namespace coshard
