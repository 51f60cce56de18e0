#pragma once
// When a rank's work ran on its device's streams: kept until the device is past it, then told to
// the rank's observers, in the order in which it was added. The rank's thread.
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include <coshard/runtime/device/device.h>
#include <coshard/runtime/observer.h>

namespace coshard {

class StreamTimes {
 public:
  // Whom to tell: the observer of the rank's World.
  void observe(ObserverSlot slot) {
    slot_ = std::move(slot);
    spans_.clear();
  }

  // Each drops what is not timed (Event::timed()).
  void ran(const CommEvent& event, std::shared_ptr<Event> begin, std::shared_ptr<Event> end);
  // `reached`: the compute stream had nothing left to do before it had to wait for `end`.
  void stalled(const CommEvent& event, std::shared_ptr<Event> reached, std::shared_ptr<Event> end);
  // Numbers the kernel of the last `computed`.
  void kernel(std::shared_ptr<Event> begin, std::shared_ptr<Event> end);

  // Tells what is known by now. After a host wait, that is all that was queued before it.
  void tell();

 private:
  enum class What : std::uint8_t { Ran, Stalled, Kernel };
  struct Span {
    What what;
    CommEvent event;
    std::string communicator, label;  // its texts, whose owners may be gone by then
    std::uint64_t kernel;
    std::shared_ptr<Event> begin, end;
  };
  static constexpr std::size_t kMany = 64;  // so many wait for the device before it is asked
  Observer* observer() const { return slot_ ? *slot_ : nullptr; }
  void add(What what, const CommEvent& event, std::uint64_t kernel, std::shared_ptr<Event> begin,
           std::shared_ptr<Event> end);
  static void tell(Observer& observer, Span& span, std::int64_t begin, std::int64_t end);

  ObserverSlot slot_;
  std::deque<Span> spans_;
  std::uint64_t kernels_ = 0;
};

}  // namespace coshard
