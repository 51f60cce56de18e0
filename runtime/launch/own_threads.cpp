#include <pthread.h>

#include <deque>

#include "runtime/launch/insist.h"
#include "runtime/launch/rank_host.h"
#include "runtime/launch/rank_seat.h"
#include "runtime/start_thread.h"

namespace coshard {
namespace {

void run_rank(int rank, RankSeat& seat, const RankProgram& program) {
  {
    const RankSeat::Taken taken(seat);  // before anything asks for the thread's own context
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
    std::deque<RankSeat> seats(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) seats[i].count_in(program.sleeper(ranks[i]));
    JoinedThreads threads(ranks.size());
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const int rank = ranks[i];
      RankSeat& seat = seats[i];
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
