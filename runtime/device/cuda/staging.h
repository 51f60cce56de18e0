#pragma once
// A ring of pinned host slots that pageable memory is staged through: an upload waits only for the
// last use of its slot, normally long complete; a download waits for the stream, with all slots in
// flight. Owned by one CudaDevice, used on its rank's thread.
#include <array>
#include <cstddef>
#include <memory>

#include <coshard/runtime/device/device.h>

namespace coshard {

class StagingRing {
 public:
  static constexpr std::size_t kSlots = 8, kSlotBytes = std::size_t{1} << 20;
  StagingRing();  // pinning synchronizes the device, so not in mid-run
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;
  // The host memory may be reused at once.
  void upload(void* to, const void* host, std::size_t bytes, Stream& stream,
              std::int64_t deadline_ns);
  // Returns when the data have arrived.
  void download(void* host, const void* from, std::size_t bytes, Stream& stream,
                std::int64_t deadline_ns);

 private:
  // The next slot, free for use.
  char* take(std::size_t& slot, std::int64_t deadline_ns);

  char* data_ = nullptr;
  std::size_t next_ = 0;
  std::array<std::shared_ptr<Event>, kSlots> busy_;
};

}  // namespace coshard
