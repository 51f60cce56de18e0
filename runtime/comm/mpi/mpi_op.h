#pragma once
// The state of an op with ranks in other processes: the data they have sent, and transfers in
// flight.
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/comm/local/host/chunks.h"
#include "runtime/comm/local/host/collective_op.h"

namespace coshard {

// The distribution of a group's ranks over processes.
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
    int tag = 0;                  // rank elsewhere: the tag of its blocks
    bool received = false;        // receives for them have been posted
    bool told = false;            // its data came in the notice
    std::vector<std::byte> data;  // those data
    // Rank here: the tags of its blocks, by receiving process.
    std::vector<std::pair<const Spread::Process*, int>> tags;
    std::vector<Memory> memory;
    // For its whole process: blocks in flight to it, and shards of a sum in flight from it.
    std::atomic<int> unsent{0}, unsummed{0};
  };
  const std::shared_ptr<const Spread> spread;
  std::mutex mutex;          // guards Source::received
  std::vector<Source> from;  // by rank of the group
};

// Whether every rank of a process needs the same data of a source, so that they are sent once.
bool is_shared(CollectiveKind kind);
// Whether no data of `source` are needed elsewhere.
bool sends_nothing(const Collective& c, int source);
// The data of `source` for `target`, from the arguments of the source alone.
CopyBlock block_for(const Collective& c, int ranks, int source, int target);
std::size_t bytes_for(const Collective& c, int ranks, int source, int target);
// Whether the block is one contiguous range on the side with these strides.
bool is_contiguous(const CopyBlock& block, const std::array<std::int64_t, 3>& stride);

// Whether each process sums one shard of an all_reduce, then sends it to all others. Same answer in
// all processes.
bool is_sharded(const Collective& c);
// The elements of such an all_reduce that a process sums, in proportion to its number of ranks.
struct ShardOf {
  std::int64_t first = 0, last = 0;  // elements
};
ShardOf shard_of(const Collective& c, int ranks, const Spread::Process& process);

}  // namespace coshard
