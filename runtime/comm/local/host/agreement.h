#pragma once
// Whether the programs of the ranks of a group agree on what they call, and in which order. Any
// thread; each rank's calls come in their order.
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/local/host/collective_op.h"
#include "runtime/comm/local/swap_watch.h"

namespace coshard {

class Agreement {
 public:
  // `members`: the world ranks. `title`: of the group, "tp[4]".
  Agreement(std::vector<int> members, std::string title)
      : members_(std::move(members)), title_(std::move(title)), given_up_(members_.size()) {}
  // How the calls of two ranks that have arrived differ, naming both lines; "": they agree.
  std::string difference(const CollectiveOp& op, int a, int b) const;
  // The same for the order in which `rank` and `first`, whose calls agree, issue equal collectives.
  std::string swap(const CollectiveOp& op, int rank, int first = 0);
  // Of two launches that differ: the collective `at` of each; null: it has fewer.
  std::string part_text(std::size_t at, int a, const Collective* one, int b,
                        const Collective* other) const;
  // What `rank` calls, and where.
  std::string side_text(const CollectiveOp& op, int rank) const;
  // `rank` gave up an await, `text` says which. `key`: alike on all ranks.
  void note_given_up(int rank, std::uint64_t key, std::uint64_t number, std::string text);

 private:
  struct GivenUp {
    std::uint64_t key, number;
    std::string text;
  };
  bool calls_agree(const CollectiveOp& op, int& a, int b) const;
  std::string other_order(const CollectiveOp& op, int a, int b) const;
  std::string other_part(const CollectiveOp& op, int a, int b) const;
  std::string other_replicas(const CollectiveOp& op, int a, int b) const;
  std::string other_gradients(const CollectiveOp& op, int a, int b) const;
  std::string ranks_disagree(const CollectiveOp& op, int a, int b) const;
  std::string both_sides_text(const CollectiveOp& op, int a, int b) const;
  std::string noted_text(const CollectiveOp& op, int rank) const;
  std::string given_up_text(const CollectiveOp& op, int rank, int other) const;
  int size() const { return static_cast<int>(members_.size()); }
  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }

  std::vector<int> members_;
  std::string title_;
  SwapWatch swaps_;
  mutable std::mutex mutex_;  // given_up_: by rank, the awaits that it gave up last, oldest first
  std::vector<std::deque<GivenUp>> given_up_;
};

}  // namespace coshard
