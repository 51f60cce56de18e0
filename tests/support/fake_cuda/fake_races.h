#pragma once
// Races between streams on the fake driver. Each op of a stream comes after those that events, its
// stream and the host order before it: a vector clock. Each byte of memory has its last write and
// the reads since. An access that does not come after the other one of a pair, of which one writes,
// is a race in whatever order the two have run.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace coshard::testing {

// Up to which of its ops each stream is over.
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
  // A part that one op has in the use of memory.
  struct Access {
    const char* what = nullptr;  // it does: a kernel's name, a call; null: there was none
    int device = 0, stream = 0;
    std::uint64_t number = 0;  // of the op in its stream
    bool same_op(const Access& other) const {
      return stream == other.stream && number == other.number;
    }
  };
  // Of two accesses that nothing orders.
  struct Race {
    Access first, second;
    bool first_writes = false, second_writes = false;
    const char *begin = nullptr, *end = nullptr;
  };

  // `by`, which comes after `clock`, uses memory now. A race is told to `on_race`.
  void read(const Access& by, const FakeClock& clock, const void* data, std::size_t bytes);
  void write(const Access& by, const FakeClock& clock, const void* data, std::size_t bytes);
  // The memory is new: whoever used these addresses before had other memory.
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

  // Makes the address a border of segments; what begins there or later.
  Place cut(Address at);
  void look(Race& race, const Access& earlier, bool writes, const FakeClock& clock, Place at);

  std::map<Address, Segment> memory_;
};

// As people are told, `where` being the memory that holds it.
std::string to_string(const FakeRaces::Race& race, const void* where, std::size_t bytes);

}  // namespace coshard::testing
