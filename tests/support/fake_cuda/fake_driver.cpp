#include "tests/support/fake_cuda/fake_driver.h"

#include "tests/support/fake_cuda/fake_graphs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <coshard/runtime/observer.h>

namespace coshard::testing {
namespace {

// CUDA_DEVICE_MAX_CONNECTIONS of a device is 8 unless it is set (CUDA programming guide,
// environment variables).
constexpr int kHardwareQueues = 8;
constexpr int kPoison = 0xff;                // NaN in every floating type, -1 in every integer
constexpr std::size_t kPinnedPoison = 4096;  // bytes of pinned memory; rings are large
thread_local bool next_is_stuck = false;

}  // namespace

FakeDriver& FakeDriver::get() {
  static auto* driver = new FakeDriver();  // never destroyed: it is used at exit
  return *driver;
}

int& FakeDriver::current_device() {
  thread_local int device = 0;
  return device;
}

void FakeDriver::reseed(std::uint64_t seed) {
  const auto held = lock();
  random_.seed(seed);
  forget();
}

void FakeDriver::set_fault(Fault fault) {
  const auto held = lock();
  faults_.push_back(std::move(fault));
}

void FakeDriver::clear_faults() {
  const auto held = lock();
  faults_.clear();
  for (const auto& stream : streams_)
    for (const OpRef& op : stream->queue) op->stuck = false;
  more_.notify_all();
}

int FakeDriver::enter(const char* call) {
  std::int64_t delay = 0;
  int status = 0;
  {
    const auto held = lock();
    ++counts_[call];
    next_is_stuck = false;
    for (Fault& fault : faults_) {
      if (fault.call != call || fault.times == 0) continue;
      if (fault.device >= 0 && fault.device != current_device()) continue;
      if (fault.after-- > 0) continue;
      --fault.times;
      delay = fault.delay_ns;
      status = fault.skipped ? kSkip : fault.error;
      next_is_stuck = fault.stuck;
      break;
    }
  }
  if (delay > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(delay));
  return status != 0 ? status : fake_graphs::prohibited(call);
}

bool FakeDriver::take_stuck() { return std::exchange(next_is_stuck, false); }

std::uint64_t FakeDriver::calls(const std::string& name) const {
  const auto held = lock();
  if (!name.empty()) {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }
  std::uint64_t sum = 0;
  for (const auto& [call, count] : counts_) sum += count;
  return sum;
}

std::uint64_t FakeDriver::synchronisations() const {
  std::uint64_t sum = 0;
  for (const char* call : {"DeviceSynchronize", "StreamSynchronize", "Free", "HostAlloc",
                           "Memcpy to the host", "Memcpy of pageable memory"})
    sum += calls(call);
  return sum;
}

void FakeDriver::reset_counts() {
  const auto held = lock();
  counts_.clear();
}

void FakeDriver::complain(const std::string& text) {
  const auto held = lock();
  complaints_.push_back(text);
  std::fprintf(stderr, "fake driver: %s\n", text.c_str());
}

std::vector<std::string> FakeDriver::complaints() const {
  const auto held = lock();
  return complaints_;
}

std::vector<std::string> FakeDriver::take_complaints() {
  const auto held = lock();
  race_told_ = false;
  return std::exchange(complaints_, {});
}

FakeDriver::Stream* FakeDriver::make_stream(int device, int priority) {
  const auto held = lock();
  streams_.push_back(std::make_unique<Stream>());
  streams_.back()->device = device;
  streams_.back()->priority = priority;
  streams_.back()->id = ++next_stream_;
  streams_.back()->hardware = device * kHardwareQueues + static_cast<int>(draw() % kHardwareQueues);
  return streams_.back().get();
}

// Work queued on it still runs.
void FakeDriver::destroy(Stream& stream) {
  const auto held = lock();
  stream.destroyed = true;
  std::erase_if(streams_, [](const auto& s) { return s->destroyed && s->queue.empty(); });
}

// The null stream of each device is a stream like the others.
FakeDriver::Stream& FakeDriver::stream(void* handle) {
  if (handle != nullptr) return *static_cast<Stream*>(handle);
  static std::map<int, Stream*> defaults;
  const auto held = lock();
  Stream*& mine = defaults[current_device()];
  if (mine == nullptr) mine = make_stream(current_device(), 0);
  return *mine;
}

FakeDriver::OpRef FakeDriver::enqueue(Stream& stream, Work work) {
  Op op;
  op.work = std::move(work);
  return enqueue(stream, std::move(op));
}

FakeDriver::OpRef FakeDriver::enqueue(Stream& stream, Op op) {
  const auto held = lock();
  if (stream.capture != nullptr) return fake_graphs::record(stream, std::move(op.work));
  auto queued = std::make_shared<Op>(std::move(op));
  queued->stream = &stream;
  queued->number = stream.next++;
  queued->order = next_order_++;
  queued->host = host_;
  queued->stuck = std::exchange(next_is_stuck, false);
  stream.queue.push_back(queued);
  if (queued->gate != nullptr) queued->gate->arrivals.push_back(queued);
  if (keeps_queued_) note_queued(queued);
  ++progress_;
  more_.notify_all();
  return queued;
}

FakeDriver::OpRef FakeDriver::last_of(Stream& stream) const {
  const auto held = lock();
  return stream.queue.empty() ? nullptr : stream.queue.back();
}

// Whether the hardware queue can issue the front op of a stream. Work that spins on the device (a
// collective's kernel, a kernel that never ends) has left the queue.
bool FakeDriver::issuable(const Op& op) const {
  if (op.ready && !op.ready()) return false;
  return std::ranges::all_of(op.after, &Op::done) &&
         std::ranges::all_of(op.after_launch, [this](const OpRef& other) { return begun(*other); });
}

// Whether it has left its hardware queue.
bool FakeDriver::begun(const Op& op) const {
  if (op.done) return true;
  return op.stream->queue.front().get() == &op && issuable(op) && blocker_of(op) == nullptr;
}

// Hardware queues are FIFO: an op that cannot be issued blocks later ops of other streams in its
// queue. Null: none blocks `op`.
const FakeDriver::Stream* FakeDriver::blocker_of(const Op& op) const {
  for (const auto& stream : streams_) {
    if (stream->hardware != op.stream->hardware || stream.get() == op.stream) continue;
    const auto& queue = stream->queue;
    if (queue.empty() || queue.front()->order > op.order) continue;
    if (!issuable(*queue.front()) || (queue.size() > 1 && queue[1]->order < op.order))
      return stream.get();
  }
  return nullptr;
}

// Whether the front op of a stream can run now.
bool FakeDriver::runnable(const Op& op) const {
  if (op.stuck || !issuable(op) || blocker_of(op) != nullptr) return false;
  if (op.gate == nullptr) return true;
  if (op.gate->arrivals.size() < op.gate->expected) return false;
  return std::ranges::all_of(op.gate->arrivals, [this](const OpRef& other) {
    return other->done || (other->stream->queue.front() == other && blocker_of(*other) == nullptr);
  });
}

// Marks the op and its dependencies as needed.
void FakeDriver::need(const Op& op) {
  Stream& stream = *op.stream;
  if (op.done || stream.needed >= op.number) return;
  const std::uint64_t from = std::exchange(stream.needed, op.number);
  for (const OpRef& queued : stream.queue) {
    if (queued->number <= from) continue;
    if (queued->number > op.number) break;
    need_all_before(*queued);
    if (queued->gate == nullptr) continue;
    for (const OpRef& other : queued->gate->arrivals) need(*other);
  }
  // Earlier ops must leave its hardware queue, but need not complete.
  for (const auto& other : streams_) {
    if (other->hardware != stream.hardware || other.get() == &stream) continue;
    const auto later = std::ranges::find_if(
        other->queue, [&](const OpRef& queued) { return queued->order > op.order; });
    if (later == other->queue.begin()) continue;
    if (later - other->queue.begin() > 1) need(**(later - 2));
    need_all_before(**(later - 1));
  }
}

// Dependencies outside its stream: events and flags.
void FakeDriver::need_all_before(const Op& op) {
  for (const OpRef& before : op.after) need(*before);
  for (const OpRef& before : op.after_launch) need(*before);
  if (op.waits_for == nullptr || (op.ready && op.ready())) return;
  for (const auto& other : streams_)
    for (const OpRef& writer : other->queue)
      if (writer->writes == op.waits_for) need(*writer);
}

// Runs one op that can run; false when there is none.
bool FakeDriver::step(bool only_needed) {
  std::vector<Stream*> able;
  for (const auto& stream : streams_) {
    if (stream->queue.empty()) continue;
    const Op& front = *stream->queue.front();
    if ((!only_needed || front.number <= stream->needed) && runnable(front))
      able.push_back(stream.get());
  }
  if (able.empty()) return false;
  Stream& chosen = *able[draw() % able.size()];
  const OpRef op = chosen.queue.front();
  op->clock = reach_of(*op);
  running_ = op.get();
  if (op->work) op->work();
  running_ = nullptr;
  op->clock.add(chosen.id, op->number);
  chosen.clock = op->clock;
  op->done = true;
  op->done_ns = now_ns();
  op->work = nullptr;
  op->after.clear();
  op->after_launch.clear();
  chosen.queue.pop_front();
  ++progress_;
  more_.notify_all();
  return true;
}

bool FakeDriver::force(const OpRef& op) {
  if (op == nullptr) return true;
  const auto held = lock();
  bool marked = false;
  while (!op->done) {
    if (!marked) {
      for (const auto& stream : streams_) stream->needed = 0;
      need(*op);
    }
    const bool extra = std::uniform_real_distribution<>(0, 1)(random_) < eagerness_;
    if (extra) step(false);
    if (op->done || step(true)) {
      marked = true;
      continue;
    }
    if (!marked) break;
    marked = false;  // a flag may have been written since: mark again
  }
  return op->done;
}

void FakeDriver::drain() {
  const auto held = lock();
  while (step(false)) {
  }
}

bool FakeDriver::patient() {
  const auto held = lock();
  return draw() % 2 == 0;
}

void FakeDriver::park(void* handle, const std::uint32_t* flag) {
  Op op;
  op.waits_for = flag;
  op.ready = [flag] { return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0; };
  enqueue(queue_on(handle), std::move(op));
}

void FakeDriver::raise(void* handle, std::uint32_t* flag) {
  Op op;
  op.writes = flag;
  op.work = [flag] { __atomic_store_n(flag, 1, __ATOMIC_RELEASE); };
  enqueue(queue_on(handle), std::move(op));
}

void* FakeDriver::allocate(std::size_t bytes, bool on_device) {
  const auto held = lock();
  if (on_device && in_use_ + bytes > memory_limit_) return nullptr;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 511) / 512 * 512;
  void* data = std::aligned_alloc(512, rounded);
  if (data == nullptr) return nullptr;
  std::memset(data, kPoison, on_device ? rounded : std::min(rounded, kPinnedPoison));
  memory_[data] = {data, next_serial_++, bytes, on_device ? current_device() : -1};
  renew(data, rounded);
  if (on_device) in_use_ += bytes;
  return data;
}

bool FakeDriver::release(void* data) {
  if (data == nullptr) return true;
  const auto held = lock();
  const auto found = memory_.find(data);
  if (found == memory_.end()) return false;
  const auto [start, serial, bytes, device] = found->second;
  if (device >= 0) in_use_ -= bytes;
  std::memset(data, kPoison, device >= 0 ? bytes : std::min(bytes, kPinnedPoison));
  memory_.erase(found);
  renew(data, bytes);
  std::free(data);
  return true;
}

bool FakeDriver::reserve(std::size_t bytes) {
  if (in_use_ + bytes > memory_limit_) return false;
  in_use_ += bytes;
  return true;
}

void FakeDriver::unreserve(std::size_t bytes) { in_use_ -= bytes; }

void FakeDriver::note_range(const void* data, std::size_t bytes, int device) {
  memory_[data] = {data, next_serial_++, bytes, device};
  renew(data, bytes);
}

void FakeDriver::forget_range(const void* data) { memory_.erase(data); }

FakeDriver::Allocation FakeDriver::allocation_of(const void* data) const {
  const auto held = lock();
  auto after = memory_.upper_bound(data);
  if (after == memory_.begin()) return {};
  --after;
  const auto* end =
      static_cast<const char*>(after->first) + std::max<std::size_t>(after->second.bytes, 1);
  return static_cast<const char*>(data) < end ? after->second : Allocation();
}

bool FakeDriver::alive(const Allocation& allocation) const {
  return allocation_of(allocation.data).serial == allocation.serial;
}

}  // namespace coshard::testing
