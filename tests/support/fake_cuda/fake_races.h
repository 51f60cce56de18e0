#pragma once
// Races between streams on the fake driver. Vector clocks record which ops precede an op through
// events, its stream and the host. Each byte of memory has its last write and the reads since. Two
// accesses, of which one writes, race if neither precedes the other, in whatever order they ran.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coshard::testing {

// For each stream, the last op that is over.
class FakeClock {
 public:
  bool covers(int stream, std::uint64_t number) const;
  void add(int stream, std::uint64_t number);
  void add(const FakeClock& other);

 private:
  std::vector<std::pair<int, std::uint64_t>> ends_;  // by stream
};

class FakeRaces {
 public:
  // An op's access to memory.
  struct Access {
    const char* what = nullptr;  // a kernel's name, a call; null: no access
    int device = 0, stream = 0;
    std::uint64_t number = 0;  // of the op in its stream
    bool same_op(const Access& other) const {
      return stream == other.stream && number == other.number;
    }
  };
  // Two accesses that nothing orders.
  struct Race {
    Access first, second;
    bool first_writes = false, second_writes = false;
    const char *begin = nullptr, *end = nullptr;
  };

  // `by`, which comes after `clock`, accesses memory now. Races are reported to `on_race`.
  void read(const Access& by, const FakeClock& clock, const void* data, std::size_t bytes);
  void write(const Access& by, const FakeClock& clock, const void* data, std::size_t bytes);
  // The memory is new: earlier accesses to these addresses were to other memory.
  void forget(const void* data, std::size_t bytes);
  void reset() { memory_.clear(); }

  std::function<void(const Race&)> on_race;

 private:
  using Address = const char*;
  struct Segment {
    Address end = nullptr;
    Access write;
    std::vector<Access> reads;  // one for each stream
  };
  using Place = std::map<Address, Segment>::iterator;

  // Splits segments at the address; returns the first that begins there or later.
  Place cut(Address at);
  void look(Race& race, const Access& earlier, bool writes, const FakeClock& clock, Place at);

  std::map<Address, Segment> memory_;
};

// As reported; `where` is the allocation.
std::string to_string(const FakeRaces::Race& race, const void* where, std::size_t bytes);

}  // namespace coshard::testing
