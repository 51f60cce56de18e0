#include <coshard/styles/loss_parallel.h>

#include <coshard/dtensor/backward/backward.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/tape/tape.h>
#include "dtensor/redistribute/execute.h"
#include "dtensor/redistribute/issue.h"
#include "dtensor/tape/grad_mode.h"
#include "dtensor/tape/saved.h"
#include "runtime/coro/user_call.h"
#include "styles/loss_rows.h"

namespace coshard {
namespace {

// Layouts of the rows (all dimensions but the classes) and of the loss.
struct LossLayouts {
  std::shared_ptr<const Spec> logits;  // classes last; null: plain tensors
  int class_mesh_dim = -1;             // the mesh dimension that shards the classes
  Layout rows;                         // of the targets
  Layout loss;

  const DeviceMesh& mesh() const { return logits->mesh; }
};

class LossParallelNode final : public GradNode {
 public:
  LossParallelNode(LossRows rows, LossLayouts layouts, const Tensor& statistics)
      : rows_(std::move(rows)), layouts_(std::move(layouts)), statistics_(statistics) {
    for (Tensor* x : {&rows_.logits, &rows_.targets, &rows_.weight})
      saved_.emplace_back(std::exchange(*x, Tensor()));
  }
  std::string_view name() const override { return "loss_parallel_cross_entropy"; }
  bool records_backward() const override { return true; }
  bool release() override {
    rows_ = LossRows();
    statistics_ = Tensor();
    saved_.clear();
    return true;
  }

  void backward(std::span<const Tensor> output_grads, GradSink& sink) override {
    const LossRows rows = rows_again();
    if (grad_enabled()) return sink.accumulate(0, differentiable_gradient(rows, output_grads[0]));
    Tensor gradient = output_grads[0];
    if (gradient.is_distributed())
      gradient = redistribute_raw(gradient, partial_as_replicate(layouts_.loss));
    const bool each = rows.options.reduction == Reduction::None;
    const Tensor given = contiguous(gradient.raw_local());
    const Shape shape{each ? rows.rows : given.local_numel()};
    const Tensor out = rows_gradient(rows, view(given, shape), statistics_);
    out.set_marks(rows.logits.marks() | rows.targets.marks());
    sink.accumulate(0, out.with_spec(layouts_.logits));
  }

 private:
  LossRows rows_again() const {
    LossRows rows = rows_;
    rows.logits = saved_[0].get(name());
    rows.targets = saved_[1].get(name());
    rows.weight = saved_[2].get(name());
    return rows;
  }

  // `numbers`, one per row of this rank, as [rows..., 1].
  Tensor column(const LossRows& rows, const Tensor& numbers) const {
    Shape shape = rows.logits.local_shape();
    shape.back() = 1;
    const Tensor local =
        numbers.view_as(shape, row_major(shape), numbers.storage_offset(), nullptr);
    if (!layouts_.logits) return local;
    shape = layouts_.logits->shape;
    shape.back() = 1;
    return local.with_spec(make_spec(layouts_.mesh(), layouts_.rows, shape));
  }

  // rows_gradient composed of operators, for second derivatives.
  Tensor differentiable_gradient(const LossRows& rows, const Tensor& gradient) const {
    Tensor x = rows.logits.with_spec(layouts_.logits);
    x.set_grad_meta(inputs[0]);
    x = to(x, rows.statistic());
    const Tensor largest = column(rows, contiguous(select(statistics_, 0, 0)));
    const Tensor powers = exp(sub(x, largest));
    const Tensor softmax = div(powers, sum(powers, -1, true));
    const Tensor wanted = negative_wanted(rows, statistics_).with_spec(layouts_.logits);
    const Tensor sums = column(rows, contiguous(wanted_sums(rows)));
    const Tensor slope = add(mul(sums, softmax), to(wanted, rows.statistic()));
    const Tensor given = to(gradient, rows.statistic());
    const bool each = rows.options.reduction == Reduction::None;
    return to(mul(slope, each ? unsqueeze(given, -1) : given), rows.logits.dtype());
  }

  LossRows rows_;  // without the tensors in saved_
  LossLayouts layouts_;
  Tensor statistics_;
  std::vector<Saved> saved_;  // logits, targets, weight
};

// The nearest layout in which one mesh dimension shards the classes: one that does, or the last.
Layout with_one_class_cut(const Layout& layout, int dim) {
  Layout wanted = layout;
  int cut = layout.ndim() - 1;
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_shard(dim)) cut = m;
  for (int m = 0; m < layout.ndim(); ++m)
    if (m == cut)
      wanted[m] = Shard(dim);
    else if (!wanted[m].is_shard() || wanted[m].is_shard(dim))
      wanted[m] = Replicate();
  return wanted;
}

// Exactly one mesh dimension shards the classes (dimension `dim`); others shard rows or nothing.
void require_class_cut(const Tensor& logits, int dim) {
  int cuts = 0;
  bool fits = true;
  for (const Placement& p : logits.layout()) {
    cuts += p.is_shard(dim) ? 1 : 0;
    fits = fits && (p.is_shard() || p.is_replicate());
  }
  CS_REQUIRE(fits && cuts == 1, "loss_parallel: logits ", logits,
             ": exactly one mesh dimension must shard the classes, dimension ", dim,
             "; the others may shard other dimensions or replicate: redistribute the logits to ",
             with_one_class_cut(logits.layout(), dim), " first");
}

Tensor classes_last(const Tensor& logits, int class_dim) {
  CS_REQUIRE(logits.defined() && logits.ndim() > 0 && is_floating(logits.dtype()),
             "loss_parallel: logits must be floating-point with at least 1 dimension, got ",
             logits);
  const int dim = normalize_dim(class_dim, logits.ndim(), "loss_parallel: class_dim");
  if (logits.is_distributed()) require_class_cut(logits, dim);
  if (dim == logits.ndim() - 1) return contiguous(logits);
  Shape order;
  for (int d = 0; d < logits.ndim(); ++d)
    if (d != dim) order.push_back(d);
  order.push_back(dim);
  return contiguous(permute(logits, order));
}

LossLayouts lay_out(const Tensor& logits, Reduction reduction) {
  LossLayouts layouts;
  layouts.logits = logits.spec();
  if (!layouts.logits) return layouts;
  for (int m = 0; m < logits.layout().ndim(); ++m) {
    Placement rows = logits.layout()[m];
    if (rows.is_shard(logits.ndim() - 1)) {
      layouts.class_mesh_dim = m;
      rows = Replicate();
    }
    layouts.rows.push_back(rows);
    const bool summed = rows.is_shard() && reduction != Reduction::None;
    layouts.loss.push_back(summed ? Partial() : rows);
  }
  return layouts;
}

// This rank's targets, i64 and contiguous.
Tensor local_targets(const Tensor& targets, const Tensor& logits, const LossLayouts& layouts,
                     std::int64_t ignore_index) {
  CS_REQUIRE(targets.defined() && !is_floating(targets.dtype()),
             "loss_parallel: targets must be integers, got ", targets);
  Shape wanted = logits.shape();
  wanted.pop_back();
  CS_REQUIRE(targets.shape() == wanted, "loss_parallel: targets ", targets, " do not match logits ",
             logits, "; expected shape ", wanted);
  CS_REQUIRE(!targets.is_distributed() || (layouts.logits && targets.mesh() == layouts.mesh()),
             "loss_parallel: targets ", targets, " are not on the mesh of logits ", logits);
  Tensor own = contiguous(to(targets, DType::I64));
  // Plain targets are checked in full, so that all ranks reject them alike.
  const bool plain = !own.is_distributed();
  if (plain) check_targets(own, logits.size(-1), ignore_index);
  if (layouts.logits && plain)
    own = own.with_spec(
        make_spec(layouts.mesh(), Layout::filled(layouts.rows.ndim(), Replicate()), own.shape()));
  if (layouts.logits) own = redistribute_raw(own, layouts.rows);
  const Tensor local = contiguous(own.raw_local());
  if (!plain) check_targets(local, logits.size(-1), ignore_index);
  return local;
}

LossRows pose(const Tensor& logits, const Tensor& targets, const LossLayouts& layouts,
              const LossParallelOptions& options, const Tensor& weight) {
  CS_REQUIRE(!weight.defined() || !weight.is_distributed() || weight.layout().is_replicate(),
             "loss_parallel: weight ", weight, " must be plain or Replicate; redistribute it to ",
             Layout::filled(weight.layout().ndim(), Replicate()), " first");
  LossRows rows;
  rows.options = options;
  rows.targets = local_targets(targets, logits, layouts, options.ignore_index);
  rows.logits = logits.raw_local();
  rows.all_classes = logits.size(-1);
  rows.rows = rows.targets.local_numel();
  rows.classes = logits.local_shape().back();
  rows.first = layouts.logits ? layouts.logits->offset.back() : 0;
  weigh_rows(rows, weight);
  return rows;
}

// Each rank's statistics over its classes, in one all_reduce, in flight if classes are sharded.
// Slots are summed, since a maximum and a sum cannot be reduced in one operation.
Tensor statistics_of_ranks(const LossRows& rows, const LossLayouts& layouts) {
  const int m = layouts.class_mesh_dim;
  if (m < 0 || layouts.mesh().size(m) == 1) return row_statistics(rows, 0, 1);
  const DeviceMesh& mesh = layouts.mesh();
  const Tensor slots =
      row_statistics(rows, mesh.coordinate()[static_cast<std::size_t>(m)], mesh.size(m));
  slots.set_origin(rows.logits.origin());
  if (slots.local_numel() > 0)
    issue_all_reduce(mesh.communicator(m), Reduce::Sum, slots, {"loss_parallel"});
  return slots;
}

// The weight of the whole batch; if rows are sharded, in flight from one all_reduce over the mesh
// dimensions that shard them.
Tensor whole_batch_weight(const LossRows& rows, const LossLayouts& layouts) {
  const Tensor cell = batch_weight(rows);
  cell.set_origin(rows.logits.origin());
  std::vector<int> cuts;
  for (int m = 0; m < layouts.rows.ndim(); ++m)
    if (layouts.rows[m].is_shard() && layouts.mesh().size(m) > 1) cuts.push_back(m);
  if (!cuts.empty())
    issue_all_reduce(layouts.mesh().communicator(cuts), Reduce::Sum, cell, {"loss_parallel"});
  return cell;
}

Tensor inverse(const Tensor& x, DType dtype) {
  const NoGradGuard no_grad;
  return to(reciprocal(x), dtype);
}

Tensor finish(const LossRows& rows, const LossLayouts& layouts, const Shape& targets,
              const Tensor& losses) {
  const NoGradGuard no_grad;
  const bool each = rows.options.reduction == Reduction::None;
  Tensor loss = losses;
  if (!each) loss = sum(losses, Dims{0}, true);
  // The mean of no rows is NaN, also on a rank without rows.
  if (rows.scale.defined()) loss = add(loss, mul(rows.scale, 0.0));
  const Shape shape = each ? targets : Shape();
  const auto spec = layouts.logits ? make_spec(layouts.mesh(), layouts.loss, shape) : nullptr;
  loss = view(to(loss, rows.logits.dtype()), spec ? spec->local_shape : shape);
  return (loss.storage() == losses.storage() ? copy_of(loss) : loss).with_spec(spec);
}

}  // namespace

Task<Tensor> loss_parallel_cross_entropy(Tensor logits, Tensor targets, LossParallelOptions options,
                                         Tensor weight, CallSite site) {
  const UserCall user(site);
  CS_REQUIRE(options.label_smoothing >= 0 && options.label_smoothing <= 1,
             "loss_parallel: label_smoothing ", options.label_smoothing, " is not in [0, 1]");
  const Tensor x = classes_last(logits, options.class_dim);
  LossLayouts layouts = lay_out(x, options.reduction);
  LossRows rows = pose(x, targets, layouts, options, weight);

  const Tensor slots = statistics_of_ranks(rows, layouts);
  Tensor batch;
  if (options.reduction == Reduction::Mean) batch = whole_batch_weight(rows, layouts);
  const Redistribution slots_issued(slots);
  const Tensor found = co_await slots_issued;
  const Tensor statistics = joined_statistics(rows, found);

  if (batch.defined()) {
    const Redistribution batch_issued(batch);
    batch = co_await batch_issued;
  }
  if (batch.defined()) rows.scale = inverse(batch, rows.statistic());
  Tensor loss = finish(rows, layouts, targets.shape(), row_losses(rows, statistics));
  loss.set_marks(x.marks() | targets.marks());
  const Tensor inputs[] = {x};
  if (taped(inputs))
    push_record(std::make_shared<LossParallelNode>(std::move(rows), std::move(layouts), statistics),
                inputs, std::span<Tensor>(&loss, 1));
  co_return loss;
}

}  // namespace coshard
