#include "runtime/device/device.h"

namespace coshard {

Buffer::~Buffer() {
  if (owned_) device_->deallocate(data_, bytes_);
}

std::shared_ptr<Buffer> Device::make_buffer(std::size_t bytes) {
  // Nothing is read or written there, but offsets are added to it: a null pointer would not do.
  alignas(64) static char nowhere[64];
  if (bytes == 0) return std::make_shared<Buffer>(shared_from_this(), nowhere, 0, false);
  return std::make_shared<Buffer>(shared_from_this(), allocate(bytes), bytes, true);
}

std::shared_ptr<Buffer> Device::borrow(void* data, std::size_t bytes) {
  return std::make_shared<Buffer>(shared_from_this(), data, bytes, false);
}

}  // namespace coshard
