#pragma once
// The parameters that fully_shard gathers together, and the order in which groups run. Rank's
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
  Tensor shard;                      // what the slots hold outside forward
  Tensor whole;                      // and in it: a view of the group's memory
  Shape shape;                       // of `whole`, on this rank
  std::shared_ptr<const Spec> spec;  // of `whole`; null: a plain tensor
  std::int64_t begin = 0;            // of `whole` in the group's memory
  std::int64_t shard_begin = 0;      // of `shard` in what this rank sends
  bool open = false;                 // this backward will still add to its gradient
  bool taken = false;                // an operator may have written its gradient's place already
};

// The groups below one module. They run in the same order on all ranks, so they are gathered ahead
// alike.
class ShardSchedule {
 public:
  using Group = std::weak_ptr<ShardGroup>;
  void add(Group group) { all_.push_back(std::move(group)); }
  const std::vector<Group>& all() const { return all_; }

  // A forward of `group` begins, and ends, however it does.
  void begin_forward(const std::shared_ptr<ShardGroup>& group);
  void end_forward();
  // It has left outputs on the tape.
  void record(const std::shared_ptr<ShardGroup>& group) { left_.push_back(group); }
  // Gathers what comes after `group` in forward or in backward.
  void gather_next(const ShardGroup& group);
  void gather_previous(const ShardGroup& group);
  // Frees what was gathered, but is not in use.
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
  // The gathered parameters report their gradients to this object from now on.
  void adopt_parameters();
  const Module& module() const { return module_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  const std::shared_ptr<ShardSchedule>& schedule() const { return schedule_; }
  void set_schedule(std::shared_ptr<ShardSchedule> schedule) { schedule_ = std::move(schedule); }

  // The parameters are whole until what this returns goes. Adds to `arriving` what the module must
  // await.
  std::shared_ptr<void> enter(std::vector<Tensor>& arriving);
  // A forward has given these outputs: backward through them begins with before_backward.
  void leave(std::vector<Tensor>& outputs);
  // Issues what backward through the module needs; what it must await first.
  std::vector<Tensor> before_backward();

  bool is_gathered() const { return gathered_; }
  bool is_done() const { return done_; }  // its gradients have left, in this backward
  bool is_running() const { return uses_ > 0; }
  bool reshards() const { return options_.reshard_after_forward; }
  // Issues the all_gather, unless the parameters are there or on their way.
  void gather();
  void release();
  const Tensor& memory() const { return memory_; }

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
  // What leaves of a gradient, and how.
  struct Part {
    const ShardedParameter* parameter;
    std::shared_ptr<const Spec> spec;
  };
  void reduce();
  static void add_earlier(const std::vector<Part>& parts, const Tensor& mine);
  static void tell(const ShardedParameter& parameter);

  Module& module_;
  std::vector<ShardedParameter> parameters_;
  DeviceMesh mesh_;
  FullyShardOptions options_;
  std::shared_ptr<ShardSchedule> schedule_;
  Tensor memory_;           // [size_]; without memory unless gathered, then in flight
  std::int64_t size_ = 0;   // elements, each parameter at an address that fits every kernel
  Counts counts_;           // of the elements that each rank holds
  std::int64_t total_ = 0;  // their sum
  StridedBlocks blocks_;    // what ranks hold, rank by rank, in the memory
  std::shared_ptr<WorkState> when_read_;    // what freed memory waits for
  std::shared_ptr<Buffer> none_;            // in place of the memory
  std::vector<std::uint32_t> gathered_at_;  // how often the shards had been written to then
  Tensor gradients_;  // [size_], as memory_; undefined unless backward adds to them
  int uses_ = 0;      // forwards under way
  int open_ = 0;
  bool gathered_ = false, active_ = false, done_ = false;
  CollectorHere here_;
};

// A row-major part of a group's memory, without waiting for what fills it.
Tensor part_of_memory(const Tensor& memory, const Shape& shape, std::int64_t begin,
                      std::shared_ptr<const Spec> spec = nullptr);
void copy_into(const Tensor& to, const Tensor& from);

// What a slot that holds x now holds outside forward: x, or its shard.
Tensor lasting(const Tensor& x);

}  // namespace coshard
