#include <coshard/dtensor/ops/overlap.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include "dtensor/ops/linear.h"
#include "dtensor/ops/row_choice.h"
#include "dtensor/ops/row_schedules.h"
#include "dtensor/redistribute/deferred.h"
#include "dtensor/redistribute/taped.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

Tensor brought_to(const Tensor& y, const std::optional<Placement>& target) {
  return target ? redistribute(y, Layout(*target)).tensor() : y;
}

// A tensor only for the tape, without memory for its elements.
Tensor without_data(const RowProduct& product) {
  const Tensor one = Tensor::empty(product.device(), Shape{1}, product.dtype());
  const Strides none(product.local_shape().size(), 0);
  return one.view_as(product.local_shape(), none, 0, nullptr);
}

struct Sum {
  Layout target;
  RowChoice choice;
};

std::optional<Sum> sum_of(const RowFactor& factor, const std::optional<Placement>& target,
                          Overlap overlap) {
  // The sum of a recomputed layer may never be read.
  if (!target || redistributes_are_deferred()) return std::nullopt;
  if (!may_send_rows(factor.x, overlap) || !factor.weight.is_distributed()) return std::nullopt;
  Shape shape = factor.x.shape();
  shape.back() = factor.weight.size(0);
  const Layout to = normalize(Layout(*target), shape, "redistribute");
  const auto choice = sum_choice(std::span(&factor, 1), to[0], overlap, 0);
  return choice ? std::optional(Sum{to, *choice}) : std::nullopt;
}

Tensor plain(const RowFactor& factor, Overlap overlap) {
  return linear_with(factor.x, factor.weight, factor.bias, overlap);
}

Task<Tensor> summed(RowFactor factor, Sum sum, Overlap overlap) {
  RowProduct product(std::vector<RowFactor>{factor}, overlap);
  if (!product.is_sum()) co_return redistribute(plain(factor, overlap), sum.target).tensor();
  Task<Tensor> rows = rows_summed(product, sum.choice.dim, sum.choice.pieces, nullptr);
  const Tensor to = co_await std::move(rows);
  const Tensor whole = product.record(without_data(product));
  co_return redistributed(whole, to);
}

// Undefined: the operator's rule moves x.
Task<Tensor> of_arriving(RowFactor factor, int dim, Overlap overlap) {
  RowProduct product(std::vector<RowFactor>{factor}, overlap);
  if (!product.reads(factor.x)) co_return Tensor();
  Task<Tensor> rows = rows_as_they_arrive(product, dim, nullptr);
  Tensor y = co_await std::move(rows);
  co_return product.record(std::move(y));
}

}  // namespace

Task<Tensor> overlapped_linear(Tensor x, Tensor weight, Tensor bias,
                               std::optional<Placement> target, Overlap overlap, CallSite site) {
  const OperatorCall user(site);
  if (x.defined() && x.is_distributed()) {
    const RowFactor factor{x, weight, bias};
    if (const auto arriving = arriving_choice(factor, overlap, 0)) {
      Task<Tensor> product = of_arriving(factor, arriving->dim, overlap);
      const Tensor y = co_await std::move(product);
      if (y.defined()) co_return brought_to(y, target);
    }
    if (x.in_flight()) {
      Task<void> arrived = arrival_of(Tensors(x));
      co_await std::move(arrived);
    }
    if (const auto sum = sum_of(factor, target, overlap)) {
      Task<Tensor> product = summed(factor, *sum, overlap);
      co_return co_await std::move(product);
    }
  }
  co_return brought_to(plain({x, weight, bias}, overlap), target);
}

}  // namespace coshard
