#include <coshard/dtensor/ops/axes.h>
#include <coshard/dtensor/ops/operator_attrs.h>
#include <coshard/dtensor/ops/ops.h>
#include "dtensor/ops/local.h"
#include "dtensor/ops/writes.h"
#include "runtime/coro/user_call.h"

namespace coshard {
namespace {

std::vector<TensorInfo> view_infer(Infos in, const Attrs& attrs) {
  const Shape to = attrs.as<ViewAttrs>().shape;
  CS_REQUIRE(numel(to) == numel(in[0].shape), "view: sizes differ: ", in[0].shape, " as ", to);
  return {{to, in[0].dtype}};
}

// Splits both shapes, from the left, into runs of dimensions with equal products. A run begins with
// one dimension of each; dimensions of size 1 belong to no run and are matched in order, except the
// one that is `alone` in the longer shape.
class ViewRuns {
 public:
  ViewRuns(const Shape& from, const Shape& to, int alone)
      : from_(from), to_(to), alone_(alone), left_(from.size(), '.'), right_(to.size(), '.') {}

  // Only the first dimensions of a run can be sharded and, where their sizes differ, only if old
  // and new chunks coincide.
  Rule rule() {
    Rule rule;
    if (numel(from_) > 0) {
      while (skip_ones()) {
        if (from_[i_] != to_[j_]) rule.even.push_back({axis_, from_[i_], to_[j_]});
        name_pair();
        join_or_split(rule);
      }
    }
    rule.in = {left_};
    rule.out = {right_};
    return rule;
  }

 private:
  // Skips the next dimensions of size 1 and returns those that may have a counterpart.
  std::vector<std::size_t> take_ones(const Shape& shape, std::size_t& at, bool longer) const {
    std::vector<std::size_t> ones;
    for (; at < shape.size() && shape[at] == 1; ++at)
      if (!longer || alone_ != static_cast<int>(at)) ones.push_back(at);
    return ones;
  }
  // Matches the next dimensions of size 1; false if no run follows.
  bool skip_ones() {
    const auto left = take_ones(from_, i_, from_.size() > to_.size());
    const auto right = take_ones(to_, j_, to_.size() > from_.size());
    for (std::size_t k = 0; k < std::min(left.size(), right.size()); ++k)
      left_[left[k]] = right_[right[k]] = axis_++;
    return i_ < from_.size() && j_ < to_.size();
  }
  void name_pair() { left_[i_] = right_[j_] = axis_++; }
  // Skips the run. Where one side is a single dimension, sharding a later dimension of the other
  // side makes it a StridedShard (torch's _StridedShard).
  void join_or_split(Rule& rule) {
    const std::size_t i = i_;
    const std::size_t j = j_;
    skip_run();
    if (j_ == j + 1) add_strides(rule, from_, i, i_, static_cast<int>(j), true);
    if (i_ == i + 1) add_strides(rule, to_, j, j_, static_cast<int>(i), false);
  }
  void add_strides(Rule& rule, const Shape& many, std::size_t begin, std::size_t end, int one,
                   bool joined) const {
    std::int64_t split = many[begin];
    for (std::size_t d = begin + 1; d < end; split *= many[d++]) {
      Strategy cut;
      cut.axis = left_[joined ? begin : static_cast<std::size_t>(one)];
      cut.even_by = many[d];
      const Placement in_many = Shard(static_cast<int>(d));
      const Placement in_one = StridedShard(one, static_cast<int>(split));
      cut.in = {joined ? in_many : in_one};
      cut.out = {joined ? in_one : in_many};
      rule.extra.push_back(cut);
    }
  }
  void skip_run() {
    std::int64_t have = from_[i_++];
    std::int64_t want = to_[j_++];
    while (have != want) {
      if (have < want) {
        have *= from_[i_++];
      } else {
        want *= to_[j_++];
      }
    }
  }

  const Shape& from_;
  const Shape& to_;
  const int alone_;  // -1: none
  std::string left_, right_;
  std::size_t i_ = 0, j_ = 0;
  char axis_ = 'a';
};

Rule view_rule(Infos in, const Attrs& attrs) {
  const auto [to, alone] = attrs.as<ViewAttrs>();
  Rule rule = ViewRuns(in[0].shape, to, alone).rule();
  rule.strided = true;
  pass_partial(rule, "P", "P", kMoving);
  return rule;
}

void view_forward(OpContext& c) {
  const Tensor x = local_reshape(c.in[0], c.out_shape[0]);
  c.out[0] = x.view_as(x.local_shape(), x.strides(), x.storage_offset(), nullptr);
}

void view_backward(GradContext& c);

[[gnu::cold]] std::vector<OpDef::Sample> view_samples() {
  return {{{input({3, 5})}, ViewAttrs{{15}}},        {{input({6, 5})}, ViewAttrs{{2, 3, 5}}},
          {{input({2, 3, 4})}, ViewAttrs{{2, 12}}},  {{input({1, 5, 6})}, ViewAttrs{{5, 1, 3, 2}}},
          {{input({6, 4})}, ViewAttrs{{4, 6}}},      {{input({3, 1, 4})}, ViewAttrs{{1, 3, 4}}},
          {{input({1, 4})}, ViewAttrs{{1, 2, 2}}},   {{input({1, 3})}, ViewAttrs{{1, 1, 3}, 0}},
          {{input({2, 1, 1})}, ViewAttrs{{2, 1}, 1}}};
}

const OpDef& view_op() {
  static const OpDef op{.name = "view",
                        .rule = view_rule,
                        .infer = view_infer,
                        .forward = view_forward,
                        .backward = view_backward,
                        .view = true,
                        .saves_in = 0,
                        .saves_out = 0,
                        .samples = view_samples};
  return op;
}

// The shape with its -1, if any, inferred.
Shape resolved(Shape shape, const Tensor& x) {
  std::int64_t known = 1;
  std::size_t open = shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    CS_REQUIRE(shape[i] >= -1, "view: size ", shape[i], " in ", shape);
    if (shape[i] != -1) {
      known *= shape[i];
    } else {
      CS_REQUIRE(open == shape.size(), "view: more than one -1 in ", shape);
      open = i;
    }
  }
  if (open == shape.size()) return shape;
  CS_REQUIRE(known > 0 && x.numel() % known == 0, "view: sizes differ: ", x, " as ", shape);
  shape[open] = x.numel() / known;
  return shape;
}

void view_backward(GradContext& c) {
  if (!c.sink.needs_grad(0)) return;
  const Shape& from = c.in_info[0].shape;
  const ViewAttrs attrs{.shape = from, .alone = c.attrs.as<ViewAttrs>().alone};
  c.sink.accumulate(0, call1(view_op(), {c.out_grad[0]}, attrs));
}

// A view with a dimension of size 1, `alone`, added or removed.
Tensor view_but_one(const Tensor& x, const Shape& to, int alone) {
  return call1(view_op(), {x}, ViewAttrs{.shape = to, .alone = alone});
}

}  // namespace

Tensor squeeze(const Tensor& x, CallSite site) {
  const OperatorCall user(site);
  Shape to;
  for (const std::int64_t size : x.shape())
    if (size != 1) to.push_back(size);
  return to == x.shape() ? unchanged(x) : view(x, to);
}

Tensor squeeze(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  if (x.ndim() == 0 && (dim == 0 || dim == -1)) return unchanged(x);
  const int along = normalize_dim(dim, x.ndim(), "squeeze");
  if (x.size(along) != 1) return unchanged(x);
  Shape to = x.shape();
  to.erase(static_cast<std::size_t>(along));
  return view_but_one(x, to, along);
}

Tensor unsqueeze(const Tensor& x, int dim, CallSite site) {
  const OperatorCall user(site);
  const int at = normalize_dim(dim, x.ndim() + 1, "unsqueeze");
  CS_REQUIRE(x.ndim() < 8, "unsqueeze: ", x,
             " already has 8 dimensions, the most a tensor may have");
  Shape to = x.shape();
  to.insert(static_cast<std::size_t>(at), 1);
  return view_but_one(x, to, at);
}

Tensor view(const Tensor& x, const Shape& shape, CallSite site) {
  const OperatorCall user(site);
  const Shape to = resolved(shape, x);
  return call1(view_op(), {x}, ViewAttrs{to});
}

std::span<const OpDef* const> view_ops() {
  static const OpDef* const ops[] = {&view_op()};
  return ops;
}

}  // namespace coshard
