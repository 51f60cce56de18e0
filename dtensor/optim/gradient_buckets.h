#pragma once
// Gradient buckets of a DataParallel: memory of its gradients, and when it is sent. Rank's thread.
#include <coshard/dtensor/optim/data_parallel.h>
#include "dtensor/backward/collected_leaves.h"

namespace coshard {

// The minimum size of a bucket, in bytes. Pure.
struct BucketSizes {
  std::int64_t first = 0, other = 0;
  static constexpr std::int64_t kMost = 25 << 20;  // only a single gradient may be larger
  // The last buckets get smaller, since no computation hides them. `left`: bytes of the gradients
  // that are in no earlier bucket.
  std::int64_t limit(std::int64_t left, bool is_first) const;
};
// For `total` bytes: 8 buckets, of at least 1 MiB and at most kMost. `link`, if known: few enough
// that all latencies but one are at most 2 % of the transfer time.
BucketSizes bucket_sizes(std::int64_t total, int ranks, const std::optional<Link>& link);

class GradientBuckets final : public GradCollector,
                              public std::enable_shared_from_this<GradientBuckets> {
 public:
  GradientBuckets(std::vector<Tensor> parameters, const DeviceMesh& mesh, int dim,
                  const DataParallelOptions& options);
  // Makes the parameters refer to this object.
  void adopt_parameters();
  void set_sync(bool on) { sync_ = on; }
  std::vector<std::int64_t> bytes() const;

  bool begin(std::span<const int> reached) override;
  Tensor place(const GradMeta& leaf) override;
  void add(GradMeta& leaf, Tensor gradient) override;
  void complete(int leaf) override;
  void end() override;
  void give_up() noexcept override { active_ = false; }
  Tensor awaited() override { return used_; }
  void settle() override;

 private:
  struct Slot {
    Tensor parameter;
    int bucket = -1;
    std::int64_t offset = 0;
    bool open = false;   // this backward will still add to it
    bool taken = false;  // an operator may have written to it already
  };
  struct Bucket {
    Tensor memory;
    std::vector<int> slots;
    int open = 0;
    Counts order = nullptr, shapes = nullptr;  // of its parameters (Collective)
  };
  void build();
  BucketSizes sizes_of(std::int64_t total) const;
  void fill(std::span<const int> order);
  Tensor view_of_slot(const Slot& slot, std::shared_ptr<const Spec> spec) const;
  bool shares_memory(const Slot& slot, const Tensor& gradient) const;
  bool lies_in_place(const Slot& slot, const Tensor& gradient) const;
  void put(const Slot& slot, Tensor gradient) const;
  void fill_with_zeros(const Slot& slot) const;
  void leave_to_the_first(const Slot& slot) const;
  void send(std::size_t number);
  void send_unused_too();
  bool note_what_leaves(std::size_t number) const;
  std::shared_ptr<const Spec> spec_after(const Slot& slot) const;
  std::string name_of_slot(const Slot& slot) const;

  DeviceMesh mesh_;
  int dim_;
  DataParallelOptions options_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;  // in the order in which they are sent; empty: not built
  std::size_t sent_ = 0;         // in this backward
  Tensor used_;                  // per slot, whether some rank has its gradient; until settle()
  bool sync_ = true, active_ = false, compared_ = false;
  std::shared_ptr<const ReplicaHashes> replicas_;  // for the first bucket that is sent
  CollectorHere here_{*this};
};

}  // namespace coshard
