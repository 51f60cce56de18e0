#pragma once
// The cost of one step of a plan, for a mesh and a tensor's shape: closed forms of what every rank
// holds and lacks. Pure; created for one search: layouts are numbered, and each pair of shardings
// is compared once.
#include <limits>
#include <optional>
#include <span>

#include <coshard/runtime/cost/link.h>
#include "dtensor/redistribute/dim_shardings.h"
#include "dtensor/redistribute/step.h"

namespace coshard {

// A layout, prepared for pricing.
struct PricedLayout {
  Layout layout;
  InlineVector<std::int16_t, 8> shardings;  // by tensor dimension: the number of its sharding
  double most = 0;                          // elements of the rank that holds the most
  double mean = 0;                          // over all ranks
};

class Pricing {
 public:
  // `width`: bytes per element. `links`: of the mesh dimensions; none: those of time_of.
  Pricing(const std::vector<int>& mesh_shape, const Shape& shape, int width,
          std::span<const Link> links = {});
  Pricing(const Pricing&) = delete;
  Pricing& operator=(const Pricing&) = delete;

  PricedLayout ready(const Layout& layout);
  // The single step from one layout to another, if there is one.
  //   shards, R -> shards, R   Slice if every rank already holds what it needs; AllGather if every
  //                            rank needs all that its group holds; else AllToAll of exactly what
  //                            is missing
  //   Partials -> R            AllReduce      sums and averages combine, other reductions do not;
  //   Partials -> shards       ReduceScatter  a Partial waits for inner ones that do not commute
  //                                           with it
  //   shards -> P(sum)         ShardToPartial if the shards make up the whole
  //   R -> Partial             ReplicateToPartial
  // For a step slower than `limit` the result only tells that it is slower.
  std::optional<Move> move(const PricedLayout& from, const PricedLayout& to,
                           double limit = std::numeric_limits<double>::infinity());
  // A lower bound for any sequence of steps.
  double at_least(const PricedLayout& from, const PricedLayout& to);
  // No step takes longer, us.
  double longest() const;

 private:
  Move move_data(const PricedLayout& from, const PricedLayout& to, double limit);
  std::optional<Move> reduce_data(const PricedLayout& from, const PricedLayout& to, MeshDims dims);
  Move priced(const PricedLayout& from, const PricedLayout& to, Move move);
  bool make_up(const PricedLayout& whole, const PricedLayout& sharded, MeshDims dims);
  bool is_plain(const PricedLayout& from, const PricedLayout& to, const Move& move);
  double missing(const PricedLayout& from, const PricedLayout& to, double enough);
  double missing_by_rank(const PricedLayout& from, const PricedLayout& to, double enough);

  MeshGrid grid_;
  int width_;
  double numel_;
  std::span<const Link> links_;
  Link fastest_;
  std::vector<DimShardings> dims_;
};

}  // namespace coshard
