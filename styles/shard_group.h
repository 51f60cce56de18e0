#pragma once
// Groups of parameters that fully_shard gathers together, and the order in which they run. Rank's
// thread.
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/styles/fully_shard.h>
#include "dtensor/collected_leaves.h"
#include "dtensor/redistribute/blocks.h"

namespace coshard {

class ShardGroup;

// A parameter of a group.
struct ShardedParameter {
  std::string name;
  std::vector<Tensor*> slots;        // several: tied
  Tensor shard;                      // in the slots outside forward
  Tensor whole;                      // in the slots in forward: a view of the group's memory
  Shape shape;                       // of `whole`, on this rank
  std::shared_ptr<const Spec> spec;  // of `whole`; null: a plain tensor
  std::int64_t begin = 0;            // offset of `whole` in the group's memory
  std::int64_t shard_begin = 0;      // offset of `shard` in the data this rank sends
  bool open = false;                 // this backward will still add to its gradient
  bool taken = false;                // an operator may have written its gradient already
  bool requires_grad = false;        // of both, when they were last compared
};

// The groups below one module. They run in the same order on all ranks, so prefetches agree.
class ShardSchedule {
 public:
  using Group = std::weak_ptr<ShardGroup>;
  void add(Group group) { all_.push_back(std::move(group)); }
  const std::vector<Group>& all() const { return all_; }

  // Call when a forward of `group` begins, and when it ends, also by an error.
  void begin_forward(const std::shared_ptr<ShardGroup>& group);
  void end_forward();
  // Call when a forward has put outputs on the tape.
  void record(const std::shared_ptr<ShardGroup>& group) { left_.push_back(group); }
  // Prefetches the group that runs after `group`, in forward or in backward.
  void gather_next(const ShardGroup& group);
  void gather_previous(const ShardGroup& group);
  // Frees the groups that are gathered but not in use.
  void end_backward();

 private:
  std::vector<Group> all_;
  std::vector<Group> last_, now_;  // in the order in which forwards began: last time, and this time
  std::size_t at_ = 0;             // in last_
  std::vector<Group> left_;        // in the order in which forwards ended
  int running_ = 0;
};

class ShardGroup final : public GradCollector, public std::enable_shared_from_this<ShardGroup> {
 public:
  ShardGroup(Module& module, std::vector<ShardedParameter> parameters, const DeviceMesh& mesh,
             const FullyShardOptions& options);
  // Makes the gathered parameters report their gradients to this object.
  void adopt_parameters();
  const Module& module() const { return module_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  const std::shared_ptr<ShardSchedule>& schedule() const { return schedule_; }
  void set_schedule(std::shared_ptr<ShardSchedule> schedule) { schedule_ = std::move(schedule); }

  // Keeps the parameters whole for the lifetime of the result. Adds to `arriving` what to await.
  std::shared_ptr<void> enter(std::vector<Tensor>& arriving);
  // Call with a forward's outputs: backward through them begins with before_backward.
  void leave(std::vector<Tensor>& outputs);
  // Issues what backward through the module needs; returns what it must await first.
  std::vector<Tensor> before_backward();

  bool is_gathered() const { return gathered_; }
  bool is_done() const { return done_; }  // its gradients have been reduced in this backward
  bool is_running() const { return uses_ > 0; }
  bool reshards() const { return options_.reshard_after_forward; }
  // Issues the all_gather, unless the parameters are gathered or in flight.
  void gather();
  void release();
  const Tensor& memory() const { return memory_; }

  void refresh() override;
  bool begin(std::span<const int> reached) override;
  Tensor place(const GradMeta& leaf) override;
  void add(GradMeta& leaf, Tensor gradient) override;
  void complete(int leaf) override;
  void end() override;
  void give_up() noexcept override;

 private:
  class Use;
  class WhenRead;
  void lay_out();
  bool changed() const;
  Tensor packed_shards() const;
  void free_memory();
  void require_own_slots() const;
  void put_in_slots(bool whole);
  void list_gradients(std::vector<Tensor>& awaited) const;
  void await_reductions(std::vector<Tensor>& awaited) const;
  Tensor gradient_view(const ShardedParameter& parameter) const;
  bool lies_in_place(const ShardedParameter& parameter, const Tensor& gradient) const;
  void put(const ShardedParameter& parameter, const Tensor& gradient) const;
  void note_gradients() const;
  Tensor scattered() const;
  // A gradient to reduce, and the spec of its shard.
  struct Part {
    const ShardedParameter* parameter;
    std::shared_ptr<const Spec> spec;
  };
  void reduce();
  static void add_earlier(std::vector<Part>& parts, const Tensor& mine);
  static void tell(const ShardedParameter& parameter);

  Module& module_;
  std::vector<ShardedParameter> parameters_;
  DeviceMesh mesh_;
  FullyShardOptions options_;
  std::shared_ptr<ShardSchedule> schedule_;
  Tensor memory_;           // [size_]; has memory only while gathered, and is in flight otherwise
  std::int64_t size_ = 0;   // elements; each parameter is aligned for every kernel
  Counts counts_;           // elements that each rank holds
  std::int64_t total_ = 0;  // their sum
  StridedBlocks blocks_;    // where the ranks' elements are in the memory, by rank
  std::shared_ptr<WorkState> when_read_;    // the pending work of freed memory
  std::shared_ptr<Buffer> none_;            // stands in for freed memory
  std::vector<std::uint32_t> gathered_at_;  // the shards' write counts when gathered
  Tensor gradients_;  // [size_], laid out as memory_; defined while backward adds to it
  int uses_ = 0;      // running forwards
  int open_ = 0;      // parameters to which the running backward still adds
  bool gathered_ = false, active_ = false, done_ = false;
  CollectorHere here_{*this};
};

// A row-major part of a group's memory; does not wait for the data.
Tensor part_of_memory(const Tensor& memory, const Shape& shape, std::int64_t begin,
                      std::shared_ptr<const Spec> spec = nullptr);
void copy_into(const Tensor& to, const Tensor& from);

// The tensor that the slot of x holds outside forward: x, or its shard.
Tensor lasting(const Tensor& x);

}  // namespace coshard
