#pragma once
// SGD and AdamW for tensors in any layout, and gradient-norm clipping. Gradients that are still
// Partial are reduced by one bucketed all_reduce per mesh dimension and dtype. Rank's thread.
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include <coshard/dtensor/tensor/tensors.h>
#include <coshard/runtime/coro/task.h>

#pragma GCC visibility push(default)
namespace coshard {
namespace kernels {
struct AdamW;
}

// Reduces every Partial gradient of `parameters` to its parameter's layout, to Replicate where that
// is Partial itself: one bucketed all_reduce (label "gradients") per mesh dimension, dtype and
// reduction, whatever the number of gradients; one redistribute for each gradient that set_grad
// made Partial where its parameter is sharded.
Task<void> reduce_gradients(Tensors parameters, CallSite site = CallSite::current());

// Sums (or averages) each gradient over the replicas along dimension `dim` of `mesh`: data
// parallelism for parameters sharded over another dimension. Parameters may be plain, or DTensors
// on meshes of other dimensions; a gradient keeps its layout, even P(sum). One that is Replicate
// along that dimension is the whole value already: Sum leaves it as it is. One bucketed all_reduce
// per dtype, issued but not awaited: gradients are in flight. Error{BadInput}: a dimension out of
// range; another reduction; a gradient that is sharded or Partial along that dimension. Ranks that
// miss different gradients fail at this or the next collective there (Error{CommFailed} on all).
void all_reduce_gradients(const std::vector<Tensor>& parameters, const DeviceMesh& mesh, int dim,
                          Reduce reduce = Reduce::Sum, CallSite site = CallSite::current());

// Computes the total p-norm (p > 0), or the largest magnitude (p = infinity), of the logical
// gradients, then multiplies them by min(1, max_norm / (norm + 1e-6))
// (torch.nn.utils.clip_grad_norm_). Each element counts once, even if its parameter is listed
// twice. Gradients may be on several meshes, or plain: equal on every rank and counted once, or, of
// parameters of which each rank trains its own (varies), summed over that dimension, whose ranks
// all list as many of them. Returns the norm, f64 [], plain and equal on every rank of the meshes;
// the host does not wait for it.
//   Moves:  reduce_gradients; then one all_reduce of a number per mesh dimension or, for disjoint
//           meshes, one over all their ranks, which must all pass the same parameters.
//   Fails:  Error{BadInput}: max_norm < 0; p <= 0; no parameters; a mesh without this rank that
//           overlaps another one.
Task<Tensor> clip_grad_norm(Tensors parameters, double max_norm, double p = 2,
                            CallSite site = CallSite::current());

class Optimizer {
 public:
  // A parameter listed twice (a tied one) is stepped once. Error{BadInput}: no parameters; one
  // that is not a leaf, or is expanded.
  explicit Optimizer(std::vector<Tensor> parameters);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;  // captured steps refer to it by address
  Optimizer& operator=(const Optimizer&) = delete;
  // reduce_gradients, then one update of every parameter that has a gradient; counts as a write to
  // it. Error{BadInput} on all ranks: a parameter that parallelize_module or distribute_module has
  // replaced in its module since; replicas of a gradient that differ (check_replicas). If a DTensor
  // has a gradient on only some ranks of its mesh, all of them fail at the next collective there
  // with Error{CommFailed}, which names rank and parameter: give the other ranks a gradient of
  // zeros.
  Task<void> step(CallSite site = CallSite::current());
  void zero_grad();
  const std::vector<Tensor>& parameters() const { return parameters_; }
  // What the next step of parameter number i starts from, besides the parameter, in its layout:
  // AdamW's exp_avg, exp_avg_sq, max_exp_avg_sq (amsgrad) and master (of bf16 and f16), SGD's
  // momentum. Handles; none before its first step.
  struct Moment {
    std::string_view name;
    Tensor tensor;
  };
  virtual std::vector<Moment> moments(std::size_t) const { return {}; }
  // How often it has been stepped, as far as that counts; -1: it never has moments.
  virtual std::int64_t steps_of(std::size_t) const { return -1; }
  // Makes its moments, without values, as if it had been stepped so often, once it has the value
  // that belongs to them: for `load`.
  virtual void start(std::size_t, std::int64_t) {}
  double lr = 0;  // may be changed between steps
  // On the first two steps and on every n-th step, n being this number, gradients that are already
  // Replicate are compared across ranks (replicas.h): one small all_gather per mesh dimension,
  // hidden from observers, and a copy of these gradients to the host. On the same steps, and on the
  // first with such a gradient, ranks compare plain parameters whose gradients vary, and those
  // beside DTensors: by the next collective of the dimension, which fails with Error{CommFailed} if
  // a parameter is equal on two ranks and its gradient is not. 0: never. Not in a captured step.
  std::int64_t check_replicas = 1000;

 protected:
  virtual void update() = 0;
  // Shown in traces.
  virtual std::string_view name() const { return "optimizer"; }
  // The gradient in its parameter's layout, row-major; undefined if there is none.
  static Tensor gradient_of(const Tensor& parameter);
  // A local tensor, row-major, in the layout of its parameter.
  static Tensor as_parameter(const Tensor& local, const Tensor& parameter) {
    return parameter.is_distributed() ? local.with_spec(parameter.spec()) : local;
  }
  std::vector<Tensor> parameters_;

 private:
  void require_current() const;
  void note_missing_gradients() const;
  void update_and_tell();
  bool checks_replicas();
  std::int64_t steps_ = 0;

 protected:
  // Expires with this object, and with the state that captured steps read.
  std::shared_ptr<const char> alive_ = std::make_shared<const char>();
  void state_is_lost() { alive_ = std::make_shared<const char>(); }
  // Error{BadInput}: it has expired.
  static void require_alive(const std::weak_ptr<const char>& alive, const char* who);
};

// torch.optim.SGD. Error{BadInput}: a negative lr, momentum or weight_decay; nesterov without
// momentum or with dampening.
struct SGDOptions {
  double lr = 1e-3, momentum = 0, weight_decay = 0;
  double dampening = 0;
  bool nesterov = false;
  bool maximize = false;
};
class SGD : public Optimizer {
 public:
  SGD(std::vector<Tensor> parameters, SGDOptions options = {});
  std::vector<Moment> moments(std::size_t i) const override;
  std::int64_t steps_of(std::size_t i) const override {
    return options_.momentum == 0 ? -1 : momentum_[i].defined() ? 1 : 0;
  }
  void start(std::size_t i, std::int64_t steps) override;

 private:
  void update() override;
  std::string_view name() const override { return "SGD"; }
  SGDOptions options_;
  std::vector<Tensor> momentum_;
};

// torch.optim.AdamW: decoupled weight decay (Loshchilov & Hutter). bf16 and f16 parameters keep an
// f32 master copy, which is refreshed from a parameter that was written to since the last step.
// Error{BadInput}: a negative lr, eps or weight_decay; a beta outside [0, 1).
struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0.01;
  bool amsgrad = false;
  bool maximize = false;
};
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<Tensor> parameters, AdamWOptions options = {});
  std::vector<Moment> moments(std::size_t i) const override;
  std::int64_t steps_of(std::size_t i) const override { return states_[i].step; }
  void start(std::size_t i, std::int64_t steps) override;

 private:
  void update() override;
  std::string_view name() const override { return "AdamW"; }
  AdamWOptions options_;
  struct State {
    Tensor m, v, master, largest_v;
    std::int64_t step = 0;
    std::uint32_t version = 0;  // of the parameter when its master copy was last written
  };
  struct Group;
  void make(State& state, const Tensor& parameter) const;
  void wrote(std::size_t i);
  void run(const Group& group);
  kernels::AdamW arguments(DType dtype, std::int64_t step) const;
  std::int64_t count_step(const std::vector<std::size_t>& members);
  std::vector<State> states_;
};

}  // namespace coshard
#pragma GCC visibility pop
