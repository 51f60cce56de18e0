#pragma once
// CommDebug counts what one rank issues while it is alive (PyTorch's CommDebugMode):
//
//   cs::CommDebug debug(world);
//   co_await model.forward(x);
//   debug.counts();                               // {"all_reduce": 2}
//   debug.counts("layers.0.attn");                // of one module
//   std::cout << debug;                           // a table: modules, forward and backward, bytes
//
// Created and destroyed on the rank's thread, before the world ends; several may be alive at once.
// A module counts only if its forward ran during that time.
#include <map>
#include <string>

#include <coshard/profiling/collective_counter.h>
#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

class CommDebug {
 public:
  // Count by name of the collective; only kinds that occurred.
  using Counts = std::map<std::string, std::int64_t>;

  explicit CommDebug(World& world) : world_(world) { world_.add_observer(&counter_); }
  ~CommDebug() { world_.remove_observer(&counter_); }
  CommDebug(const CommDebug&) = delete;
  CommDebug& operator=(const CommDebug&) = delete;

  // For everything, or for one module and its submodules: forward and backward together, or one of
  // them.
  Counts counts(std::string_view module = {}) const;
  Counts forward_counts(std::string_view module = {}) const;
  Counts backward_counts(std::string_view module = {}) const;
  std::int64_t total() const { return counter_.total(); }
  std::string to_json() const { return coshard::to_json(counter_); }
  const CollectiveCounter& counter() const { return counter_; }
  void reset() { counter_.reset(); }

 private:
  World& world_;
  CollectiveCounter counter_;
};

inline std::ostream& operator<<(std::ostream& out, const CommDebug& debug) {
  return out << debug.counter();
}

}  // namespace coshard
#pragma GCC visibility pop
