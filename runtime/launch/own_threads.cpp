#include <pthread.h>

#include <deque>

#include "runtime/launch/insist.h"
#include "runtime/launch/rank_host.h"
#include "runtime/launch/rank_slot.h"
#include "runtime/start_thread.h"

namespace coshard {
namespace {

void run_rank(int rank, RankSlot& seat, const RankProgram& program) {
  {
    const RankSlot::Scope scope(seat);  // before anything asks for the thread's own context
    try {
      pthread_setname_np(pthread_self(), str_cat("rank ", rank).c_str());
      program.run(rank, seat.executor());
    } catch (...) {
      program.failed(rank, std::current_exception());
    }
    insist([&] { seat.leave_census(); });
  }
  program.ended(rank);
}

class OwnThreads final : public RankHost {
 public:
  void run(std::span<const int> ranks, ThreadGroup&, const RankProgram& program) override {
    std::deque<RankSlot> seats(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i)
      seats[i].count_in(program.waiter_state(ranks[i]));
    JoinedThreads threads(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const int rank = ranks[i];
      RankSlot& seat = seats[i];
      try {
        threads.start([&program, &seat, rank] { run_rank(rank, seat, program); });
      } catch (...) {  // the system is out of threads
        program.failed(rank, std::current_exception());
        insist([&] { seat.leave_census(); });
        program.ended(rank);
      }
    }
    program.watch();
  }
};

}  // namespace

std::unique_ptr<RankHost> own_threads() { return std::make_unique<OwnThreads>(); }

}  // namespace coshard
