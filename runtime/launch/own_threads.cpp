#include <pthread.h>

#include <thread>
#include <vector>

#include "runtime/coro/executor.h"
#include "runtime/launch/rank_host.h"

namespace coshard {
namespace {

void run_rank(int rank, const RankProgram& program) {
  pthread_setname_np(pthread_self(), cat("rank ", rank).c_str());
  RankContext context;
  RankContext::exchange(&context);
  try {
    Executor executor;
    program.run(rank, executor);
  } catch (...) {  // the system has no io_context left
    program.failed(rank, std::current_exception());
  }
}

class OwnThreads final : public RankHost {
 public:
  void run(int ranks, LocalFabric&, const RankProgram& program) override {
    std::vector<std::thread> threads;
    try {
      for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&program, rank] { run_rank(rank, program); });
    } catch (...) {  // the system has no thread left for a rank
      program.failed(static_cast<int>(threads.size()), std::current_exception());
    }
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

std::unique_ptr<RankHost> own_threads() { return std::make_unique<OwnThreads>(); }

}  // namespace coshard
