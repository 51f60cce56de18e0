// The order between ops of the fake driver, and their memory accesses.
#include "tests/support/fake_cuda/fake_driver.h"

namespace coshard::testing {

FakeDriver::FakeDriver() {
  races_.on_race = [this](const FakeRaces::Race& race) {
    if (std::exchange(race_told_, true)) return;
    const Allocation memory = allocation_of(race.begin);
    complain(to_string(race, memory.data, memory.bytes));
  };
}

// From here on, ops are ordered only relative to each other.
void FakeDriver::forget_accesses() {
  races_.reset();
  race_told_ = false;
  host_ = std::make_shared<FakeClock>();
  for (const auto& stream : streams_) stream->clock = {};
}

// What an op that is about to run comes after. Where several streams meet, none starts before the
// earlier work of all of them is over.
FakeClock FakeDriver::reach_of(const Op& op) const {
  FakeClock clock = op.stream->clock;
  const auto add_before = [&clock](const Op& at) {
    if (at.host != nullptr) clock.add(*at.host);
    for (const OpRef& before : at.after) clock.add(before->clock);
  };
  add_before(op);
  if (op.gate == nullptr) return clock;
  for (const OpRef& other : op.gate->arrivals) {
    clock.add(other->done ? other->clock : other->stream->clock);
    add_before(*other);
  }
  return clock;
}

FakeRaces::Access FakeDriver::access(const char* what, const Op* by) const {
  if (by == nullptr) by = running_;
  return {what, by->stream->device, by->stream->id, by->number};
}

void FakeDriver::note_run(const FakeRaces::Access& by) {
  if (keeps_runs_ && (runs_.empty() || !runs_.back().by.same_op(by)))
    runs_.push_back({by, running_->clock});
}

std::vector<FakeDriver::Ran> FakeDriver::take_runs() {
  const auto held = lock();
  keeps_runs_ = false;
  return std::exchange(runs_, {});
}

void FakeDriver::keep_queued() {
  const auto held = lock();
  keeps_queued_ = true;
}

void FakeDriver::note_queued(const OpRef& op) {
  Queued note{op->stream->device, op->stream->id, op->kernel, op->meetings, {}, {}};
  const auto places = [this](const std::vector<OpRef>& ops, std::vector<std::size_t>& to) {
    for (const OpRef& other : ops)
      if (const auto at = queued_at_.find(other.get()); at != queued_at_.end())
        to.push_back(at->second);
  };
  places(op->after, note.after);
  places(op->after_launch, note.after_launch);
  queued_at_[op.get()] = queued_.size();
  queued_.push_back(std::move(note));
  queued_ops_.push_back(op);
}

std::vector<FakeDriver::Queued> FakeDriver::take_queued() {
  const auto held = lock();
  keeps_queued_ = false;
  queued_ops_.clear();
  queued_at_.clear();
  return std::exchange(queued_, {});
}

void FakeDriver::reads(const char* what, const void* data, std::size_t bytes, const Op* by) {
  note_run(access(what, by));
  if (knows(data)) races_.read(access(what, by), running_->clock, data, bytes);
}

void FakeDriver::writes(const char* what, const void* data, std::size_t bytes, const Op* by) {
  note_run(access(what, by));
  if (knows(data)) races_.write(access(what, by), running_->clock, data, bytes);
}

void FakeDriver::observe(const FakeClock& over) {
  const auto held = lock();
  auto known = std::make_shared<FakeClock>(*host_);
  known->add(over);
  host_ = std::move(known);
}

void FakeDriver::observe_device(int device) {
  const auto held = lock();
  for (const auto& stream : streams_)
    if (stream->device == device) observe(stream->clock);
}

}  // namespace coshard::testing
