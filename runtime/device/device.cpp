#include "runtime/device/device.h"

namespace coshard {

Buffer::~Buffer() {
  if (owned_) device_->deallocate(data_, bytes_);
}

std::shared_ptr<Buffer> Device::make_buffer(std::size_t bytes) {
  return std::make_shared<Buffer>(shared_from_this(), allocate(bytes), bytes, true);
}

std::shared_ptr<Buffer> Device::borrow(void* data, std::size_t bytes) {
  return std::make_shared<Buffer>(shared_from_this(), data, bytes, false);
}

}  // namespace coshard
