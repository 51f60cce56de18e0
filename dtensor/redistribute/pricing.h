#pragma once
// What one step of a plan costs, for a mesh and a tensor's shape: closed forms of what every rank
// holds and lacks. Pure, and made for one search: layouts are told by numbers, cuts are compared
// once.
#include <limits>
#include <optional>
#include <span>

#include <coshard/dtensor/redistribute/cost.h>
#include "dtensor/redistribute/cuts.h"
#include "dtensor/redistribute/step.h"

namespace coshard {

// A layout made ready.
struct PricedLayout {
  Layout layout;
  InlineVector<std::int16_t, 8> cuts;  // by tensor dimension: number of the cut
  double most = 0;                     // elements of the rank that holds most
  double mean = 0;                     // of all ranks
};

class Pricing {
 public:
  // `width`: bytes per element. `links`: of the mesh dimensions; none: those of time_of.
  Pricing(const std::vector<int>& mesh_shape, const Shape& shape, int width,
          std::span<const LinkCost> links = {});
  Pricing(const Pricing&) = delete;
  Pricing& operator=(const Pricing&) = delete;

  PricedLayout ready(const Layout& layout);
  // The one step from a layout to another, if there is one.
  //   shards, R -> shards, R   Slice where every rank holds already what it wants; AllGather where
  //                            all want all that the group holds; else AllToAll of exactly what is
  //                            missing
  //   Partials -> R            AllReduce       sums and averages mix, other reductions do not, and
  //   Partials -> shards       ReduceScatter   a Partial waits for inner ones that do not commute
  //                                            with it
  //   shards -> P(sum)         Expand          where the parts make up the whole
  //   R -> Partial             Share
  // Of one that takes longer than `limit`, it is only known that it does.
  std::optional<Move> move(const PricedLayout& from, const PricedLayout& to,
                           double limit = std::numeric_limits<double>::infinity());
  // No way takes less.
  double at_least(const PricedLayout& from, const PricedLayout& to);
  // What any collective takes at least.
  double least_latency() const { return fastest_.latency; }

 private:
  Move move_data(const PricedLayout& from, const PricedLayout& to, double limit);
  std::optional<Move> reduce_data(const PricedLayout& from, const PricedLayout& to, MeshDims dims);
  Move priced(const PricedLayout& from, const PricedLayout& to, Move move);
  bool make_up(const PricedLayout& whole, const PricedLayout& cut, MeshDims dims);
  bool is_plain(const PricedLayout& from, const PricedLayout& to, const Move& move);
  double missing(const PricedLayout& from, const PricedLayout& to, double enough);
  double missing_by_rank(const PricedLayout& from, const PricedLayout& to, double enough);

  MeshGrid grid_;
  int width_;
  double numel_;
  std::span<const LinkCost> links_;
  LinkCost fastest_;
  std::vector<DimCuts> dims_;
};

}  // namespace coshard
