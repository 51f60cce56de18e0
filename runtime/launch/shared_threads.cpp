// Many ranks on a few threads.
#include <pthread.h>

#include <algorithm>
#include <vector>

#include "runtime/launch/rank_fibers.h"
#include "runtime/launch/rank_host.h"
#include "runtime/start_thread.h"

namespace coshard {
namespace {

class SharedThreads final : public RankHost {
 public:
  SharedThreads(int threads, std::size_t stack_bytes)
      : threads_(threads), stack_bytes_(stack_bytes) {}

  void run(std::span<const int> here, ThreadGroup&, const RankProgram& program) override {
    const std::size_t count = std::min(static_cast<std::size_t>(threads_), here.size());
    // Outlive all threads: ranks of one thread may still be waking those of another.
    std::vector<std::unique_ptr<RankFibers>> shares;
    for (std::size_t t = 0; t < count; ++t)
      shares.push_back(std::make_unique<RankFibers>(stack_bytes_));
    JoinedThreads threads(count);
    try {
      for (std::size_t t = 0; t < count; ++t) {
        threads.start([&, t] {
          try {
            pthread_setname_np(pthread_self(), str_cat("ranks ", here[t], "+").c_str());
            for (std::size_t i = t; i < here.size(); i += count) shares[t]->add(here[i], program);
            shares[t]->run();
          } catch (...) {
            not_run(here, t, count, *shares[t], program);
          }
        });
      }
    } catch (...) {  // out of threads: the ranks of the missing ones cannot run
      for (std::size_t i = 0; i < here.size(); ++i) {
        if (i % count < threads.size()) continue;
        program.failed(here[i], std::current_exception());
        program.ended(here[i]);
      }
    }
    program.watch();
  }

 private:
  // An exception has ended the thread or kept it from starting: its remaining ranks do not run.
  static void not_run(std::span<const int> here, std::size_t first, std::size_t step,
                      const RankFibers& share, const RankProgram& program) {
    for (std::size_t i = first; i < here.size(); i += step) {
      if (share.ended(here[i])) continue;
      program.failed(here[i], std::current_exception());
      program.ended(here[i]);
    }
  }

  int threads_;
  std::size_t stack_bytes_;
};

}  // namespace

std::unique_ptr<RankHost> shared_threads(int threads, std::size_t stack_bytes) {
  return std::make_unique<SharedThreads>(threads, stack_bytes);
}

}  // namespace coshard
