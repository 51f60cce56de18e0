#include "styles/loss_parallel.h"

#include <cmath>

#include "dtensor/redistribute/redistribute.h"
#include "dtensor/tape.h"
#include "kernels/run.h"
#include "runtime/launch/world.h"

namespace coshard {
namespace {

// Runs a kernel and tells the observers how long it took.
template <class Args>
void run_observed(const Device& device, const Args& args) {
  World* world = World::current();
  if (world == nullptr || !world->observed()) return kernels::run(device.kind(), args);
  const std::int64_t begin = now_ns();
  kernels::run(device.kind(), args);
  world->observer().computed("loss_parallel", ComputeClass::Other, begin, now_ns());
}

// Logits as [rows, classes] on this rank, the targets, and what each row counts for.
struct Problem {
  Tensor logits;   // local, contiguous, classes last
  Tensor targets;  // local i64 [rows]
  std::int64_t rows = 0, classes = 0;
  std::int64_t first = 0, all_classes = 0;  // where this rank's classes lie
  LossParallelOptions options;
  std::shared_ptr<const Spec> logits_spec;  // null: plain
  Shape loss_shape;
  std::vector<double> row_weight;  // of the loss: 0 where ignored, divided by the total for a mean

  DType statistic() const { return logits.dtype() == DType::F64 ? DType::F64 : DType::F32; }
  Device& device() const { return *logits.device(); }
};

class LossParallelRecord final : public Record {
 public:
  LossParallelRecord(Problem problem, Tensor max, Tensor sum)
      : problem_(std::move(problem)), max_(std::move(max)), sum_(std::move(sum)) {}
  std::string_view name() const override { return "loss_parallel_cross_entropy"; }

  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    const Problem& p = problem_;
    Tensor gradient = output_grads[0];
    if (gradient.is_distributed() && !gradient.layout().is_replicate())
      gradient = redistribute_raw(gradient, Layout(Replicate()));
    const std::vector<double> given = gradient.to_vector();
    std::vector<double> scales = p.row_weight;
    for (std::size_t r = 0; r < scales.size(); ++r)
      scales[r] *= p.options.reduction == Reduction::None ? given[r] : given.front();
    const Tensor scale =
        Tensor::from_values(p.logits.device(), Shape{p.rows}, p.statistic(), scales);
    Tensor out = Tensor::empty(p.logits.device(), p.logits.local_shape(), p.logits.dtype());
    run_observed(p.device(),
                 kernels::CrossEntropyGrad{p.logits.dtype(), p.rows, p.classes, p.first,
                                           p.options.ignore_index, p.options.label_smoothing,
                                           p.all_classes, p.logits.data(), p.targets.data(),
                                           max_.data(), sum_.data(), scale.data(), out.data()});
    sink.give(0, out.with_spec(p.logits_spec));
  }

 private:
  Problem problem_;
  Tensor max_, sum_;
};

// Classes last; checks layouts. Replicas and plain tensors pass.
Tensor classes_last(const Tensor& logits, int class_dim) {
  CS_REQUIRE(logits.defined() && logits.ndim() > 0 && is_floating(logits.dtype()),
             "loss_parallel: logits are ", logits);
  const int dim = normalize_dim(class_dim, logits.ndim(), "loss_parallel: class_dim");
  if (logits.is_distributed()) {
    if (logits.mesh().ndim() != 1)
      fail(ErrorKind::Unsupported,
           cat("loss_parallel: logits ", logits, "; the mesh must have 1 dimension"));
    const Placement placement = logits.layout()[0];
    CS_REQUIRE(placement.is_replicate() || placement.is_shard(dim), "loss_parallel: logits ",
               logits, " must be cut along their classes, dimension ", dim, ", or replicated");
  }
  if (dim == logits.ndim() - 1) return contiguous(logits);
  Shape order;
  for (int d = 0; d < logits.ndim(); ++d)
    if (d != dim) order.push_back(d);
  order.push_back(dim);
  return contiguous(permute(logits, order));
}

Tensor local_targets(const Tensor& targets, const Tensor& logits) {
  CS_REQUIRE(targets.defined() && !is_floating(targets.dtype()), "loss_parallel: targets are ",
             targets);
  CS_REQUIRE(!targets.is_distributed() || targets.layout().is_replicate(),
             "loss_parallel: targets ", targets,
             " must be whole on every rank: plain or Replicate");
  Shape wanted = logits.shape();
  wanted.pop_back();
  CS_REQUIRE(targets.shape() == wanted, "loss_parallel: targets ", targets, " for logits ", logits,
             "; expected shape ", wanted);
  return contiguous(to(targets.raw_local(), DType::I64));
}

// Checks the targets and weighs the rows.
void weigh_rows(Problem& p, const Tensor& weight) {
  CS_REQUIRE(
      !weight.defined() || (!weight.is_distributed() && weight.shape() == Shape{p.all_classes}),
      "loss_parallel: weight ", weight, " for ", p.all_classes, " classes; it must be plain");
  if (weight.defined() && p.options.label_smoothing != 0)
    fail(ErrorKind::Unsupported, "loss_parallel: weight together with label_smoothing");
  const std::vector<double> weights = weight.defined() ? weight.to_vector() : std::vector<double>();
  const auto* target = p.targets.data_as<std::int64_t>();
  double total = 0;
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const std::int64_t c = target[r];
    const bool ignored = c == p.options.ignore_index;
    CS_REQUIRE(ignored || (c >= 0 && c < p.all_classes), "loss_parallel: target ", c, " at ", r,
               " is outside of ", p.all_classes, " classes");
    const double own = ignored ? 0 : weights.empty() ? 1 : weights[static_cast<std::size_t>(c)];
    p.row_weight.push_back(own);
    total += own;
  }
  if (p.options.reduction != Reduction::Mean) return;
  for (double& row : p.row_weight) row /= total;  // nothing counted: 0 / 0, as in PyTorch
}

Problem pose(const Tensor& logits, const Tensor& targets, const LossParallelOptions& options,
             const Tensor& weight) {
  Problem p;
  p.options = options;
  p.targets = local_targets(targets, logits);
  p.logits = logits.raw_local();
  p.logits_spec = logits.spec();
  p.all_classes = logits.size(-1);
  p.rows = p.targets.local_numel();
  p.classes = logits.local_shape().back();
  p.first = logits.is_distributed() ? logits.spec()->offset.back() : 0;
  if (options.reduction == Reduction::None) p.loss_shape = targets.shape();
  weigh_rows(p, weight);
  return p;
}

// A statistic over this rank's classes: the ranks' terms of a reduction, or already whole.
Tensor statistics(const Problem& p, std::int64_t count, Reduce reduce) {
  const Shape shape{count, p.rows};
  if (!p.logits_spec || p.classes == p.all_classes)
    return Tensor::empty(p.logits.device(), shape, p.statistic());
  return Tensor::empty(p.logits.device(),
                       make_spec(p.logits_spec->mesh, Layout(Partial(reduce)), shape),
                       p.statistic());
}

// Issues the all_reduce of a statistic; the result may be in flight.
Tensor reduced(const Tensor& terms) {
  return terms.is_distributed() ? redistribute_raw(terms, Layout(Replicate())).raw_local() : terms;
}

// The loss from the whole statistics: [sum of exp, picked, total] per row, relative to the row's
// maximum.
std::vector<double> row_losses(const Problem& p, const std::vector<double>& statistics) {
  const auto rows = static_cast<std::size_t>(p.rows);
  const double smoothing = p.options.label_smoothing;
  std::vector<double> losses(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    if (p.row_weight[r] == 0) continue;
    const double log_sum = std::log(statistics[r]);
    losses[r] = (1 - smoothing) * (log_sum - statistics[rows + r]);
    if (smoothing != 0)
      losses[r] +=
          smoothing * (log_sum - statistics[2 * rows + r] / static_cast<double>(p.all_classes));
    losses[r] *= p.row_weight[r];
  }
  return losses;
}

Tensor finish(const Problem& p, std::vector<double> losses) {
  if (p.options.reduction != Reduction::None) {
    double sum = 0;
    for (double loss : losses) sum += loss;
    bool counted = p.options.reduction == Reduction::Sum;
    for (double weight : p.row_weight) counted = counted || weight != 0;
    losses.assign(1, counted ? sum : std::nan(""));
  }
  const Tensor loss =
      Tensor::from_values(p.logits.device(), p.loss_shape, p.logits.dtype(), losses);
  if (!p.logits_spec) return loss;
  const DeviceMesh& mesh = p.logits_spec->mesh;
  return loss.with_spec(make_spec(mesh, Layout(Replicate()), p.loss_shape));
}

}  // namespace

Task<Tensor> loss_parallel_cross_entropy(Tensor logits, Tensor targets, LossParallelOptions options,
                                         Tensor weight) {
  CS_REQUIRE(options.label_smoothing >= 0 && options.label_smoothing <= 1,
             "loss_parallel: label_smoothing ", options.label_smoothing);
  const Tensor x = classes_last(logits, options.class_dim);
  Problem p = pose(x, targets, options, weight);

  const Tensor own_max = statistics(p, 1, Reduce::Max);
  run_observed(p.device(),
               kernels::RowMax{x.dtype(), p.rows, p.classes, p.logits.data(), own_max.data()});
  const Redistribution max_issued(reduced(own_max));
  const Tensor max = co_await max_issued;

  const bool smooth = options.label_smoothing != 0;
  const Tensor own = statistics(p, smooth ? 3 : 2, Reduce::Sum);
  char* at = static_cast<char*>(own.data());
  const std::int64_t row_bytes = p.rows * static_cast<std::int64_t>(size_of(p.statistic()));
  run_observed(p.device(), kernels::CrossEntropyStats{
                               x.dtype(), p.rows, p.classes, p.first, options.ignore_index,
                               p.logits.data(), p.targets.data(), max.data(), at, at + row_bytes,
                               smooth ? at + 2 * row_bytes : nullptr});
  const Redistribution sum_issued(reduced(own));
  const Tensor sum = co_await sum_issued;

  Tensor loss = finish(p, row_losses(p, sum.to_vector()));
  const Tensor inputs[] = {x};
  if (taped(inputs))
    push_record(std::make_shared<LossParallelRecord>(std::move(p), max, sum), inputs,
                std::span<Tensor>(&loss, 1));
  co_return loss;
}

}  // namespace coshard
