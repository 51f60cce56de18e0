#pragma once
// A named range in traces and in Nsight, besides the modules: a training step, reading a batch. May
// be held across a co_await. On the rank's thread.
//
//   const cs::TraceRange range(cs::str_cat("step ", step));
#include <string>

#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// Costs nothing while the world is not observed.
class TraceRange {
 public:
  explicit TraceRange(std::string_view name) : world_(World::current()) {
    if (world_ != nullptr && !world_->observed()) world_ = nullptr;
    if (world_ == nullptr) return;
    name_ = name;
    world_->observer().range_enter(name_);
  }
  ~TraceRange() {
    if (world_ != nullptr) world_->observer().range_exit(name_);
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  World* world_;
  std::string name_;
};

}  // namespace coshard
#pragma GCC visibility pop
