#include "tests/support/fake_mpi.h"

namespace coshard::testing {

FakeProcesses::FakeProcesses(int ranks, int per_process, std::uint64_t seed, std::string name,
                             std::map<int, int> deaths)
    : per_process_(per_process), mpi_(ranks / per_process, seed, std::move(deaths)) {
  for (int p = 0; p < ranks / per_process; ++p) {
    engines_.push_back(std::make_shared<MpiEngine>(mpi_.api(p)));
    ranks_.push_back(std::make_shared<MpiRanks>(engines_.back(), per_process, 1));
  }
  for (const auto& mine : ranks_)
    groups_.push_back(std::make_unique<ThreadGroup>(
        ranks, name, ThreadGroupOptions{.progress_threads = 1, .remote = mine, .key = 1}));
  for (std::size_t p = 0; p < ranks_.size(); ++p) {
    ThreadGroup* group = groups_[p].get();
    ranks_[p]->tell({[group](int rank) { group->leave(rank); },
                     [group](const std::string& cause) { group->poison(cause); },
                     [this, p](const PoisonNotice& poison) {
                       for (std::size_t other = 0; other < ranks_.size(); ++other)
                         if (other != p) ranks_[other]->poison_group(poison.group, poison.cause);
                     },
                     [group] { group->poll_remote(); }});
  }
}

FakeProcesses::~FakeProcesses() {
  for (const auto& mine : ranks_) mine->stop();
  for (const auto& engine : engines_) engine->forget();  // a communicator may outlive this
}

void FakeProcesses::leave(int rank) {
  group_of(rank).leave(rank);
  ranks_[static_cast<std::size_t>(rank / per_process_)]->send_to_all(LeftNotice{1, rank});
}

}  // namespace coshard::testing
