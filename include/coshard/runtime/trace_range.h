#pragma once
// A part of the program with a name of its own in traces and in Nsight, beside the modules: a step
// of training, reading a batch. May be held over a co_await. On the rank's thread.
//
//   const cs::TraceRange range(cs::str_cat("step ", step));
#include <string>

#include <coshard/runtime/launch/world.h>

#pragma GCC visibility push(default)
namespace coshard {

// Costs nothing while nobody observes the world.
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
