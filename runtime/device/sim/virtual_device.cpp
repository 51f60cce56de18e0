#include "runtime/device/sim/virtual_device.h"

#include <algorithm>
#include <cstring>

#include <coshard/runtime/error.h>
#include "runtime/device/sim/limits.h"

namespace coshard {
namespace {

constexpr std::size_t kAlignment = 512;  // as on cuda

std::size_t rounded(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::int64_t VirtualEvent::time() const {
  return transfer_ ? link_->wait_for(*transfer_, transfer_->parts - 1) : time_;
}

bool VirtualEvent::over_at(std::int64_t now) const {
  if (!transfer_) return time_ <= now;
  link_->advance(now);
  return transfer_->arrived(transfer_->parts - 1);
}

void VirtualStream::wait_until(std::int64_t time) {
  if (time <= now) return;
  CS_REQUIRE(time <= kLongestNs, "sim: the program takes more than ", kLongestNs,
             " ns, 11 days: too much work, or too slow a processor or link");
  now = time;
}

void* VirtualDevice::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  reclaim();
  CS_REQUIRE(bytes <= kMostBytes - memory_.in_use, "sim: the program needs more than ", kMostBytes,
             " bytes of memory");
  const std::size_t size = rounded(bytes);
  memory_.in_use += size;
  memory_.peak = std::max(memory_.peak, memory_.in_use);
  const std::uintptr_t address = next_;
  next_ += size;
  return reinterpret_cast<void*>(address);  // NOLINT: never read
}

void VirtualDevice::deallocate(void* data, std::size_t bytes,
                               std::span<const std::shared_ptr<Event>> uses) noexcept {
  if (data == nullptr) return;
  freed_.push_back({rounded(bytes), {uses.begin(), uses.end()}});
  reclaim();
}

void VirtualDevice::reclaim() {
  std::erase_if(freed_, [this](const Freed& freed) {
    for (const auto& use : freed.uses)
      if (!static_cast<const VirtualEvent&>(*use).over_at(compute_.now)) return false;
    memory_.in_use -= freed.bytes;
    return true;
  });
}

void VirtualDevice::download(void* host, const void*, std::size_t bytes) {
  ++host_waits_;
  if (!stub_)
    fail(ErrorKind::Unsupported,
         str_cat("sim: the host reads ", bytes,
                 " bytes of the device, on which nothing is computed: what the program does with "
                 "them would be a guess"));
  auto* to = static_cast<std::byte*>(host);
  for (std::size_t at = 0; at < bytes; at += sizeof *stub_)
    std::memcpy(to + at, &*stub_, std::min(sizeof *stub_, bytes - at));
}

void VirtualDevice::run(const KernelWork& work) {
  const std::int64_t begin = compute_.now;
  compute_.wait_until(begin + model_.time_ns(work));
  if (on_kernel) on_kernel(work, begin, compute_.now);
}

VirtualDevice::Stub::Stub(Device& device, double value)
    : device_(dynamic_cast<VirtualDevice&>(device)) {
  device_.stub_ = value;
}

}  // namespace coshard
