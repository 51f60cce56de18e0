#pragma once
// Groups of parameters that fully_shard gathers together, and the order in which they run. Rank's
// thread.
#include <vector>

#include <coshard/runtime/comm/communicator.h>
#include <coshard/styles/fully_shard.h>
#include "dtensor/backward/collected_leaves.h"
#include "dtensor/redistribute/shard_map.h"
#include "styles/module_state.h"
#include "styles/shard_layout.h"

namespace coshard {

class ShardGroup;

// A parameter of a group.
struct ShardedParameter {
  std::string name;
  std::vector<Tensor*> slots;         // several: tied
  Tensor shard;                       // in the slots outside forward
  Tensor whole;                       // in the slots in forward: a view of the group's memory
  Shape shape;                        // of `whole`, on this rank
  std::shared_ptr<const Spec> spec;   // of `whole`; null: a plain tensor
  int dim = 0;                        // along which `whole` is cut
  std::vector<Ranges> kept;           // positions along `dim` in `whole`, by rank
  bool open = false;                  // this backward will still add to its gradient
  bool taken = false;                 // an operator may have written its gradient already
  bool requires_grad = false;         // of both, when they were last compared
  std::uint64_t hash_when_cut = 0;    // of the values that `shard` was cut from
  std::uint32_t writes_when_cut = 0;  // Storage::changes of `shard`
  // Where gradients are added up in a wider dtype than the shard's: their sum, and the gradient
  // that it was rounded to.
  Tensor sum, rounded;
  std::uint32_t writes_when_rounded = 0;
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

class ShardGroup final : public GradCollector,
                         public ModuleState,
                         public std::enable_shared_from_this<ShardGroup> {
 public:
  ShardGroup(Module& module, std::vector<ShardedParameter> parameters, const DeviceMesh& mesh,
             const FullyShardOptions& options);
  // Makes the gathered parameters report their gradients to this object.
  void adopt_parameters();
  const Module& module() const override { return module_; }
  const std::vector<ShardedParameter>& parameters() const { return parameters_; }
  const std::shared_ptr<ShardSchedule>& schedule() const { return schedule_; }
  void set_schedule(std::shared_ptr<ShardSchedule> schedule) { schedule_ = std::move(schedule); }

  std::shared_ptr<void> enter(std::vector<Tensor>& arriving) override;
  // Backward through the outputs begins with before_backward.
  void leave(std::vector<Tensor>& outputs, std::uint64_t behind) override;
  bool casts(const Tensor& input) const override;
  bool casts(const Outputs& outputs) const override;
  void cast_inputs(Inputs& inputs) const override;
  void cast_outputs(Outputs& outputs) const override;
  // Issues what backward through the module needs; returns what it must await first. The
  // parameters stay gathered while `running` lives.
  std::vector<Tensor> before_backward(std::shared_ptr<void>& running);

  // Keeps the parameters whole until reshard(), and adds to `arriving` what to await.
  void unshard(std::vector<Tensor>& arriving);
  void reshard();

  bool is_gathered() const { return gathered_; }
  bool is_done() const { return done_; }  // this backward needs it no more
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
  class Backward;
  class WhenRead;
  void lay_out();
  // The last dimension of the mesh; before it, one over which the shards are replicated.
  int sharding() const { return mesh_.ndim() - 1; }
  Collective collective(CollectiveKind kind, std::int64_t extent, std::string_view label) const;
  bool changed() const;
  const ShardLayout::Place& place_in(const ShardLayout& layout, const ShardedParameter& p) const {
    return layout.places[static_cast<std::size_t>(&p - parameters_.data())];
  }
  const ShardLayout::Place& gradient_place(const ShardedParameter& p) const {
    return place_in(*gradient_layout_, p);
  }
  Tensor packed_shards() const;
  std::shared_ptr<const ReplicaHashes> hashes_when_cut() const;
  void free_memory();
  void finish_backward();
  void require_own_slots() const;
  void require_not_stale() const;
  void put_in_slots(bool whole);
  void list_gradients(std::vector<Tensor>& awaited) const;
  void await_reductions(std::vector<Tensor>& awaited) const;
  void lay_out_gradients();
  void make_gradients();
  Tensor gradient_view(const ShardedParameter& parameter) const;
  bool lies_in_place(const ShardedParameter& parameter, const Tensor& gradient) const;
  void put(const ShardedParameter& parameter, const Tensor& gradient) const;
  void note_gradients() const;
  Tensor scattered();
  // A gradient to reduce, and the spec of its shard.
  struct Part {
    ShardedParameter* parameter;
    std::shared_ptr<const Spec> spec;
    std::uint64_t marks;  // of the gradient, once it is reduced
  };
  void reduce();
  void add_earlier(std::vector<Part>& parts, const Tensor& now) const;
  static bool holds_sum(const ShardedParameter& parameter);
  void forget_old_sums();
  static void tell(const ShardedParameter& parameter);

  Module& module_;
  std::vector<ShardedParameter> parameters_;
  DeviceMesh mesh_;
  FullyShardOptions options_;
  // Of the shards; of gradients while they are reduced, and while they are added up.
  DType dtype_ = DType::F32, reduce_dtype_ = DType::F32, sum_dtype_ = DType::F32;
  std::shared_ptr<ShardSchedule> schedule_;
  Tensor memory_;  // of all parameters; has memory only while gathered, and is in flight otherwise
  std::shared_ptr<const ShardLayout> layout_;  // of memory_
  std::string_view names_;                     // the first and the last of parameters_
  Counts shapes_, order_;                      // of their collectives
  // What was cut has been compared, by the first gather and the first sum over replicas.
  bool compared_ = false, compared_replicas_ = false;
  std::shared_ptr<WorkState> when_read_;    // the pending work of freed memory
  std::shared_ptr<Buffer> none_;            // stands in for freed memory
  std::vector<std::uint32_t> gathered_at_;  // the shards' write counts when gathered
  Tensor gradients_;  // of those that require one; defined while backward adds to it
  std::shared_ptr<const ShardLayout> gradient_layout_;
  int uses_ = 0;       // running forwards
  int backwards_ = 0;  // that have come to the module's outputs, but not to its inputs
  int open_ = 0;       // parameters to which the running backward still adds
  bool gathered_ = false, active_ = false, done_ = false;
  bool by_hand_ = false;  // unsharded; counts as a use
  CollectorHere here_{*this};
};

// Error{BadInput}: a dtype of the policy is not floating-point.
void require_floating(const MixedPrecisionPolicy& policy);

// A row-major part of a group's memory; does not wait for the data.
Tensor part_of_memory(const Tensor& memory, const Shape& shape, std::int64_t begin,
                      std::shared_ptr<const Spec> spec = nullptr);
void copy_into(const Tensor& to, const Tensor& from);

// The tensor that the slot of x holds outside forward: x, or its shard.
Tensor lasting(const Tensor& x);

// The group that holds this module's own parameters; null: none.
inline std::shared_ptr<ShardGroup> shard_group_of(const Module& module) {
  return std::dynamic_pointer_cast<ShardGroup>(module.state());
}

}  // namespace coshard
