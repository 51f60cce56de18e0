#pragma once
// What the two sources of MpiEngine share.
#include "runtime/comm/mpi/broken_pipe.h"
#include "runtime/comm/mpi/mpi_engine.h"

namespace coshard {

constexpr int kNoticeTag = 1, kRestTag = 2, kFirstTag = 3;

struct MpiEngine::Block {
  bool sends = false;
  char* data = nullptr;
  std::size_t bytes = 0;
  int peer = 0, tag = 0;
  std::size_t piece = 0;    // bytes of each piece but the last
  std::size_t at_once = 0;  // posted at a time, at most
  std::size_t pieces = 0, unposted = 0;
  std::atomic<std::size_t> left{0};  // pieces not complete
  std::int64_t moves_since_ns = 0;   // when its first piece completed; used by the driving thread
  std::function<void()> over;
  Memory memory;
};

// Scope of MPI calls by one thread. Its end reports a failure, after releasing the lock, since the
// handler takes other locks and halts the engine.
class MpiEngine::Calls {
 public:
  explicit Calls(MpiEngine& engine)
      : engine_(engine), no_pipe_(engine.may_break_pipe_), lock_(engine.mutex_) {}
  ~Calls() {
    const std::string problem = std::exchange(engine_.untold_, "");
    lock_.unlock();
    if (problem.empty()) return;
    const std::scoped_lock telling(engine_.telling_);
    if (engine_.told_broken_) engine_.told_broken_(problem);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

 private:
  MpiEngine& engine_;
  NoBrokenPipe no_pipe_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace coshard
