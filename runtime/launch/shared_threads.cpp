// Many ranks on few threads.
#include <pthread.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "runtime/launch/rank_fibers.h"
#include "runtime/launch/rank_host.h"

namespace coshard {
namespace {

class SharedThreads final : public RankHost {
 public:
  explicit SharedThreads(int threads) : threads_(threads) {}

  void run(std::span<const int> here, ThreadGroup&, const RankProgram& program) override {
    const int ranks = static_cast<int>(here.size());  // all of the world: 0, 1, …
    const int count = std::min(threads_, ranks);
    // They outlive all threads: ranks of one may still be ringing those of another.
    std::vector<std::unique_ptr<RankFibers>> shares;
    for (int t = 0; t < count; ++t) shares.push_back(std::make_unique<RankFibers>());
    std::vector<std::thread> threads;
    try {
      for (int t = 0; t < count; ++t) {
        threads.emplace_back([&, t] {
          pthread_setname_np(pthread_self(), str_cat("ranks ", t, "+").c_str());
          const auto i = static_cast<std::size_t>(t);
          try {
            for (int rank = t; rank < ranks; rank += count) shares[i]->add(rank, program);
            shares[i]->run();
          } catch (...) {
            not_run(t, ranks, count, *shares[i], program);
          }
        });
      }
    } catch (...) {  // the system has no thread left: the ranks of the others cannot be run
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank % count < static_cast<int>(threads.size())) continue;
        program.failed(rank, std::current_exception());
        program.ended(rank);
      }
    }
    program.watch();
    for (std::thread& thread : threads) thread.join();
  }

 private:
  // What was thrown has ended the thread, or kept it from beginning: of its ranks none goes on.
  static void not_run(int first, int ranks, int step, const RankFibers& share,
                      const RankProgram& program) {
    for (int rank = first; rank < ranks; rank += step) {
      if (share.ended(rank)) continue;
      program.failed(rank, std::current_exception());
      program.ended(rank);
    }
  }

  int threads_;
};

}  // namespace

std::unique_ptr<RankHost> shared_threads(int threads) {
  return std::make_unique<SharedThreads>(threads);
}

}  // namespace coshard
