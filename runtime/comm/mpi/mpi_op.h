#pragma once
// What an op with ranks in other processes keeps: what those have sent, and what is on its way.
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/comm/local/host/chunks.h"
#include "runtime/comm/local/host/collective_op.h"

namespace coshard {

// Which ranks of a group live together.
struct Spread {
  struct Process {
    int process = 0;
    std::vector<int> ranks;
    int before = 0;  // ranks of the group in processes whose first rank is lower
  };
  Process here;
  std::vector<Process> elsewhere;  // in the order of their first ranks
};

class MpiOp final : public RemoteState {
 public:
  MpiOp(int ranks, std::shared_ptr<const Spread> of_group)
      : spread(std::move(of_group)), from(static_cast<std::size_t>(ranks)) {}
  std::vector<int> not_taken() const override;
  std::vector<int> not_summed() const override;
  static MpiOp& of(const CollectiveOp& op) { return static_cast<MpiOp&>(*op.remote); }

  using Memory = std::unique_ptr<std::byte[]>;
  struct Source {
    int tag = 0;                  // of a rank elsewhere: of its blocks
    bool received = false;        // their receives have been posted
    bool told = false;            // its notice has brought them
    std::vector<std::byte> data;  // them
    // Of a rank here: the tag of its blocks for ranks of another process.
    std::vector<std::pair<const Spread::Process*, int>> tags;
    std::vector<Memory> memory;
    // Of its whole process: blocks on their way to it, and shards of a sum on their way from it.
    std::atomic<int> unsent{0}, unsummed{0};
  };
  const std::shared_ptr<const Spread> spread;
  std::mutex mutex;          // Source::received
  std::vector<Source> from;  // by rank of the group
};

// Every rank of a process needs the same of a source, which is sent once.
bool is_shared(CollectiveKind kind);
// Nothing of `source` is needed elsewhere.
bool sends_nothing(const Collective& c, int source);
// What `source` has for `target`, from the arguments of the source alone.
CopyBlock block_for(const Collective& c, int ranks, int source, int target);
std::size_t bytes_for(const Collective& c, int ranks, int source, int target);
// One range of the memory of the side whose strides these are.
bool is_contiguous(const CopyBlock& block, const std::array<std::int64_t, 3>& stride);

// An all_reduce of which each process sums a shard, then sends it to all others: decided alike by
// all.
bool is_sharded(const Collective& c);
// Of the elements of such an all_reduce, those that a process sums: as many as it has ranks.
struct ShardOf {
  std::int64_t first = 0, last = 0;  // elements
};
ShardOf shard_of(const Collective& c, int ranks, const Spread::Process& process);

}  // namespace coshard
