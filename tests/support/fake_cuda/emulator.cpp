#include "tests/support/fake_cuda/emulator.h"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace coshard::testing {
namespace {

namespace context = boost::context;
constexpr std::size_t kStackBytes = 64 * 1024;
constexpr std::size_t kLaneBytes = 64;  // the largest value of a shuffle

enum class State { Ready, AtBarrier, AtWarp, Ended };

class EmulatedBlock;

// A running block.
struct Running {
  const CudaLaunch* launch;
  std::vector<EmulatedBlock> threads;
  std::vector<unsigned char> shared;
  std::vector<unsigned char> lanes;  // kLaneBytes for each thread
};

class EmulatedBlock final : public Block {
 public:
  void begin(Running& all, std::uint32_t index, int thread, std::uint64_t landings) {
    all_ = &all;
    index_ = index;
    count_ = all.launch->blocks;
    thread_ = thread;
    threads_ = static_cast<int>(all.launch->threads);
    shared_ = all.shared.data();
    copies_.clear();
    group_ = 0;
    landings_ = landings;
    state = State::Ready;
  }
  void barrier() override { give_way(State::AtBarrier); }
  void warp_barrier() override { give_way(State::AtWarp); }

  State state = State::Ready;
  context::fiber body;       // suspended, while the scheduler runs
  context::fiber scheduler;  // suspended, while the body runs

 protected:
  void exchange(void* value, std::size_t bytes, int from) override {
    if (bytes > kLaneBytes) throw std::runtime_error("a shuffle of a large value");
    std::memcpy(slot(thread_), value, bytes);
    warp_barrier();
    const int other = warp() * kWarp + from;
    if (other < threads_) std::memcpy(value, slot(other), bytes);
    warp_barrier();
  }
  void exchange_all(const void* value, std::size_t bytes, void* all) override {
    if (bytes > kLaneBytes || (warp() + 1) * kWarp > threads_)
      throw std::runtime_error("a warp exchanges a large value, or is not whole");
    std::memcpy(slot(thread_), value, bytes);
    warp_barrier();
    for (int lane = 0; lane < kWarp; ++lane)
      std::memcpy(static_cast<unsigned char*>(all) + static_cast<std::size_t>(lane) * bytes,
                  slot(warp() * kWarp + lane), bytes);
    warp_barrier();
  }

 private:
  unsigned char* slot(int thread) {
    return all_->lanes.data() + static_cast<std::size_t>(thread) * kLaneBytes;
  }
  void give_way(State waiting) {
    if (!scheduler) throw std::runtime_error("threads meet in a kernel that is PerElement");
    state = waiting;
    scheduler = std::move(scheduler).resume();
  }

  Running* all_ = nullptr;
};

class Scheduler {
 public:
  Scheduler(const CudaLaunch& launch, std::uint64_t seed) : launch_(launch), random_(seed) {
    all_.launch = &launch;
    all_.threads.resize(launch.threads);
    all_.shared.resize(launch.shared_bytes + 16);
    all_.lanes.resize(launch.threads * kLaneBytes);
    order_.resize(launch.threads);
    std::iota(order_.begin(), order_.end(), 0);
  }

  void run_blocks() {
    std::vector<std::uint32_t> blocks(launch_.blocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    for (const std::uint32_t block : blocks)
      launch_.uses_barriers ? run_meeting(block) : run_alone(block);
  }

 private:
  void call(EmulatedBlock& thread) {
    const auto body = reinterpret_cast<EmulatedKernel>(const_cast<void*>(launch_.function));
    body(launch_.kernel, thread);
  }

  void run_alone(std::uint32_t block) {
    std::shuffle(order_.begin(), order_.end(), random_);
    for (const int t : order_) {
      EmulatedBlock& thread = all_.threads[static_cast<std::size_t>(t)];
      thread.begin(all_, block, t, 0);
      call(thread);
    }
  }

  void run_meeting(std::uint32_t block) {
    std::fill(all_.shared.begin(), all_.shared.end(), 0xff);
    for (int t = 0; t < static_cast<int>(launch_.threads); ++t) {
      EmulatedBlock& thread = all_.threads[static_cast<std::size_t>(t)];
      thread.begin(all_, block, t, random_());
      thread.body =
          context::fiber(std::allocator_arg, stacks(), [this, &thread](context::fiber&& from) {
            thread.scheduler = std::move(from);
            try {
              call(thread);
            } catch (const std::exception& error) {
              error_ = error.what();
            }
            thread.state = State::Ended;
            return std::move(thread.scheduler);
          });
    }
    while (error_.empty() && turn()) {
    }
    if (error_.empty()) return;
    throw std::runtime_error(std::exchange(error_, {}));
  }

  // Resumes every runnable thread once; false if all have ended.
  bool turn() {
    std::shuffle(order_.begin(), order_.end(), random_);
    bool any = false;
    for (const int t : order_) {
      EmulatedBlock& thread = all_.threads[static_cast<std::size_t>(t)];
      if (thread.state != State::Ready) continue;
      any = true;
      thread.body = std::move(thread.body).resume();
    }
    if (release_warps() || release_block() || any) return true;
    const auto ended = std::ranges::count(all_.threads, State::Ended, &EmulatedBlock::state);
    if (ended < static_cast<std::int64_t>(all_.threads.size()))
      throw std::runtime_error(std::to_string(ended) + " of " +
                               std::to_string(all_.threads.size()) +
                               " threads have ended while the others wait for them to meet");
    return false;
  }

  bool release_warps() {
    bool any = false;
    for (std::size_t first = 0; first < all_.threads.size(); first += kWarp) {
      const std::size_t last = std::min(first + kWarp, all_.threads.size());
      const auto lanes = std::span(all_.threads).subspan(first, last - first);
      if (!std::ranges::all_of(lanes, [](const auto& t) { return t.state == State::AtWarp; }))
        continue;
      for (EmulatedBlock& thread : lanes) thread.state = State::Ready;
      any = true;
    }
    return any;
  }

  bool release_block() {
    if (!std::ranges::all_of(all_.threads,
                             [](const auto& t) { return t.state == State::AtBarrier; }))
      return false;
    for (EmulatedBlock& thread : all_.threads) thread.state = State::Ready;
    return true;
  }

  // One per process and never destroyed: a device may be destroyed after its thread's
  // thread_locals. The driver runs one kernel at a time.
  static context::pooled_fixedsize_stack& stacks() {
    static auto* pool = new context::pooled_fixedsize_stack(kStackBytes);
    return *pool;
  }

  const CudaLaunch& launch_;
  std::mt19937_64 random_;
  Running all_;
  std::vector<int> order_;
  std::string error_;
};

}  // namespace

void emulate(const CudaLaunch& launch, std::uint64_t seed) { Scheduler(launch, seed).run_blocks(); }

}  // namespace coshard::testing
