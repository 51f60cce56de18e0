#include <coshard/styles/woven.h>

#include <algorithm>
#include <optional>

#include <coshard/dtensor/distribute/distribute.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/coro/when_all.h>
#include "runtime/coro/user_call.h"
#include "styles/weaving.h"

namespace coshard {
namespace {

const BranchLocal<bool> weaving;

// Branches that start while one is alive compute parts.
class Weaving {
 public:
  Weaving() : before_(weaving.get()) { weaving.own() = true; }
  ~Weaving() { weaving.own() = before_; }
  Weaving(const Weaving&) = delete;
  Weaving& operator=(const Weaving&) = delete;

 private:
  bool before_;
};

// The number of shards of the rows.
std::int64_t row_shards(const Tensor& x) {
  std::int64_t shards = 1;
  if (x.is_distributed())
    for (int m = 0; m < x.mesh().ndim(); ++m)
      if (x.layout()[m].is_sharded(0)) shards *= x.mesh().size(m);
  return shards;
}

// The number of rows on each rank that holds any.
std::int64_t rows_of(const Tensor& x) {
  const std::int64_t shards = row_shards(x);
  CS_REQUIRE(x.size(0) % shards == 0, "woven: the ", x.size(0), " rows of ", x,
             " are not divisible by their ", shards, " shards, so the ranks cannot cut them alike");
  return x.size(0) / shards;
}

// Whether x stands for a DTensor on a rank outside its mesh.
bool is_nothing(const Tensor& x) { return !x.is_distributed() && x.shape() == Shape{0}; }

// Rows [begin, end) of those that each rank holds.
Tensor rows_between(const Tensor& x, std::int64_t begin, std::int64_t end) {
  const std::int64_t shards = row_shards(x);
  if (shards == 1) return slice(x, 0, begin, end);
  Shape shape = x.shape();
  shape[0] = (end - begin) * shards;
  Tensor local = to_local(x);
  if (x.mesh().contains_this_rank()) local = slice(local, 0, begin, end);
  return from_local(local, x.mesh(), x.layout(), {.shape = shape});
}

Tensor joined(const std::vector<Tensor>& parts) {
  const Tensor& first = parts.front();
  if (row_shards(first) == 1) return cat(parts, 0);
  Shape shape = first.shape();
  shape[0] = 0;
  std::vector<Tensor> locals;
  for (const Tensor& part : parts) {
    shape[0] += part.size(0);
    locals.push_back(to_local(part));
  }
  return from_local(cat(locals, 0), first.mesh(), first.layout(), {.shape = shape});
}

// A batch, split into parts.
class Cut {
 public:
  Cut(const Inputs& inputs, int parts) : parts_(parts) {
    for (const Tensor& x : inputs.args) meet(x);
    for (const auto& named : inputs.kwargs) meet(named.second);
    CS_REQUIRE(batch_, "woven: no input with at least 2 rows to split into ", parts_, " parts",
               inputs.args.empty() ? "" : str_cat("; the first is ", inputs.args.front()));
    CS_REQUIRE(rows_ >= parts_, "woven: of ", *batch_, " each rank has ", rows_,
               " rows, too few for ", parts_, " parts");
  }

  // Part number `part` of all inputs.
  Inputs part(const Inputs& inputs, int part) const {
    Inputs cut = inputs;
    for (Tensor& x : cut.args) x = part_of(x, part);
    for (auto& named : cut.kwargs) named.second = part_of(named.second, part);
    return cut;
  }

  std::int64_t rows(int part) const { return begin(part + 1) - begin(part); }
  const Tensor& batch() const { return *batch_; }

 private:
  static bool has_rows(const Tensor& x) { return x.defined() && x.ndim() > 0 && x.size(0) != 1; }

  void meet(const Tensor& x) {
    if (!has_rows(x)) return;
    const std::int64_t rows = rows_of(x);
    if (!batch_) {
      batch_ = x;
      rows_ = rows;
    }
    CS_REQUIRE(rows == rows_, "woven: of ", x, " each rank has ", rows, " rows, but of ", *batch_,
               " it has ", rows_, "; what the parts share has size 1 in dimension 0");
  }
  std::int64_t begin(int part) const {
    return part * (rows_ / parts_) + std::min<std::int64_t>(part, rows_ % parts_);
  }
  Tensor part_of(const Tensor& x, int part) const {
    return has_rows(x) ? rows_between(x, begin(part), begin(part + 1)) : x;
  }

  int parts_;
  std::int64_t rows_ = 0;
  std::optional<Tensor> batch_;
};

void require_rows(const Module& module, const Tensor& y, const Cut& cut, int part) {
  if (is_nothing(y)) return;
  CS_REQUIRE(y.ndim() > 0, "woven: ", module.type_name(), " returned ", y,
             ", which has no rows; weave what comes before the loss");
  CS_REQUIRE(rows_of(y) == cut.rows(part), "woven: ", module.type_name(), " returned ", y,
             ", of which each rank has ", rows_of(y), " rows, for ", cut.rows(part), " rows of ",
             cut.batch(), "; its rows must be those of the batch, on the same ranks");
}

Outputs joined(const Module& module, const std::vector<Outputs>& made, const Cut& cut) {
  Outputs outputs;
  for (std::size_t i = 0; i < made.front().size(); ++i) {
    std::vector<Tensor> parts;
    for (std::size_t part = 0; part < made.size(); ++part) {
      CS_REQUIRE(made[part].size() == made.front().size() &&
                     made[part][i].defined() == made.front()[i].defined(),
                 "woven: ", module.type_name(), " returned other outputs for part ", part,
                 " than for part 0");
      if (!made[part][i].defined()) continue;
      require_rows(module, made[part][i], cut, static_cast<int>(part));
      parts.push_back(made[part][i]);
    }
    outputs.push_back(parts.empty() ? Tensor() : joined(parts));
  }
  return outputs;
}

std::vector<Tensor> all_of(const std::vector<Outputs>& made) {
  std::vector<Tensor> all;
  for (const Outputs& outputs : made)
    for (const Tensor& y : outputs)
      if (y.defined()) all.push_back(y);
  return all;
}

Task<Outputs> weave(Module& module, int parts, Inputs inputs, CallSite site) {
  const UserCall user(site);
  const Cut cut(inputs, parts);
  std::vector<Task<Outputs>> children;
  for (int part = 0; part < parts; ++part) {
    Inputs some = cut.part(inputs, part);
    children.push_back(module.call(std::move(some), site));
  }
  inputs = Inputs();
  const Weaving parts_of_one;
  Task<std::vector<Outputs>> all = when_all(std::move(children));
  const std::vector<Outputs> made = co_await std::move(all);
  Task<void> arrived = arrival_of(all_of(made));
  co_await std::move(arrived);
  co_return joined(module, made, cut);
}

Task<Tensor> only_of(const Module& module, Task<Outputs> call) {
  Outputs outputs = co_await std::move(call);
  CS_REQUIRE(outputs.size() == 1, "woven: ", module.type_name(), " returned ", outputs.size(),
             " outputs; use call()");
  co_return std::move(outputs.front());
}

}  // namespace

bool computes_a_woven_part() { return weaving.get(); }

Woven woven(Module& module, int parts) {
  CS_REQUIRE(parts >= 1, "woven: ", parts, " parts of a batch; at least 1");
  return {module, parts};
}

Task<Outputs> Woven::call(Inputs inputs, CallSite site) const {
  return parts_ == 1 ? module_->call(std::move(inputs), site)
                     : weave(*module_, parts_, std::move(inputs), site);
}

Task<Tensor> Woven::forward(Inputs inputs, CallSite site) const {
  return only_of(*module_, call(std::move(inputs), site));
}

Task<Tensor> Woven::forward(Tensor x, CallSite site) const {
  return forward(Inputs(std::move(x)), site);
}

}  // namespace coshard
