#include "dtensor/redistribute/pricing.h"

#include <algorithm>

namespace coshard {
namespace {

std::size_t nth(int i) { return static_cast<std::size_t>(i); }

bool commute(Reduce a, Reduce b) {
  const auto additive = [](Reduce r) { return r == Reduce::Sum || r == Reduce::Avg; };
  return a == b || (additive(a) && additive(b));
}

// Whether the Partials over `dims` can be reduced now, by one collective.
bool may_reduce(const Layout& layout, MeshDims dims) {
  for (int m = 0; m < layout.ndim(); ++m)
    for (int k = m + 1; has(dims, m) && k < layout.ndim(); ++k)
      if (layout[k].is_partial() && !commute(layout[m].reduce, layout[k].reduce)) return false;
  return true;
}

// Which mesh dimensions change, and how.
struct Changes {
  MeshDims reduced = 0, expanded = 0, shared = 0, moved = 0;
  bool possible = true;
};
Changes changes_of(const Layout& from, const Layout& to) {
  Changes seen;
  bool inner_partial = false;
  for (int m = from.ndim(); m-- > 0;) {
    const MeshDims bit = 1U << m;
    const Placement &now = from.begin()[m], &next = to.begin()[m];
    if (now == next) {
      // as it is
    } else if (now.is_partial()) {
      seen.possible &= !next.is_partial();
      seen.reduced |= bit;
    } else if (!next.is_partial()) {
      seen.moved |= bit;
    } else if (now.is_sharded()) {
      seen.possible &= next == Partial();
      seen.expanded |= bit;
    } else {
      seen.possible &= next.reduce != Reduce::Product || !inner_partial;
      seen.shared |= bit;
    }
    inner_partial = inner_partial || next.is_partial();
  }
  return seen;
}

}  // namespace

Pricing::Pricing(const std::vector<int>& mesh_shape, const Shape& shape, int width,
                 std::span<const Link> links)
    : grid_(mesh_shape), width_(width), numel_(static_cast<double>(numel(shape))), links_(links) {
  dims_.reserve(shape.size());
  for (const std::int64_t size : shape) dims_.emplace_back(grid_, size);
  if (links.empty()) return;
  fastest_ = links[0];
  for (const Link& link : links) {
    fastest_.latency = std::min(fastest_.latency, link.latency);
    fastest_.bytes_per_us = std::max(fastest_.bytes_per_us, link.bytes_per_us);
  }
}

PricedLayout Pricing::ready(const Layout& layout) {
  PricedLayout made{layout, {}, 1, numel_};
  std::array<ShardingKey, 8> keys{};
  for (int m = 0; m < layout.ndim(); ++m)
    if (layout[m].is_sharded() && grid_.size[nth(m)] > 1)
      keys[nth(layout[m].dim)][nth(m)] = sharding_code(layout[m]);
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const int id = dims_[d].id_of(keys[d]);
    made.shardings.push_back(static_cast<std::int16_t>(id));
    made.most *= dims_[d][id].most;
    made.mean /= grid_.size_of(dims_[d][id].dims);
  }
  return made;
}

std::optional<Move> Pricing::move(const PricedLayout& from, const PricedLayout& to, double limit) {
  const Changes changes = changes_of(from.layout, to.layout);
  if (!changes.possible || (changes.reduced != 0) + (changes.expanded != 0) +
                                   (changes.shared != 0) + (changes.moved != 0) !=
                               1)
    return std::nullopt;
  if (changes.moved) return move_data(from, to, limit);
  if (changes.reduced) return reduce_data(from, to, changes.reduced);
  if (changes.expanded && !make_up(to, from, changes.expanded)) return std::nullopt;
  Move move;
  move.kind = changes.shared ? StepKind::ReplicateToPartial : StepKind::ShardToPartial;
  move.copied = to.most;
  return priced(from, to, move);
}

Move Pricing::move_data(const PricedLayout& from, const PricedLayout& to, double limit) {
  Move move;
  bool gathers = true;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const int have = from.shardings[d], want = to.shardings[d];
    if (have == want) continue;
    const MeshDims needed = dims_[d].pair(have, want).needed;
    move.dims |= needed;
    gathers = gathers && dims_[d].gathers(have, want, needed);
  }
  if (move.dims != 0) {
    const Link link = slowest(links_, move.dims);
    const double enough = (limit - link.latency) * link.bytes_per_us / width_;
    move.moved = missing(from, to, std::max(enough, 0.0));
  }
  if (move.moved > 0)
    move.kind = gathers ? StepKind::AllGather : StepKind::AllToAll;
  else
    move.dims = 0;  // those that would have to receive something want nothing
  return priced(from, to, move);
}

std::optional<Move> Pricing::reduce_data(const PricedLayout& from, const PricedLayout& to,
                                         MeshDims dims) {
  if (!may_reduce(from.layout, dims)) return std::nullopt;
  MeshDims sharded = 0;
  for (int m = 0; m < grid_.ndim; ++m)
    if (has(dims, m) && to.layout[m].is_sharded()) sharded |= 1U << m;
  if (sharded != 0 && (sharded != dims || !make_up(from, to, dims))) return std::nullopt;
  Move move;
  move.dims = dims;
  move.kind = sharded != 0 ? StepKind::ReduceScatter : StepKind::AllReduce;
  const int n = grid_.size_of(dims);
  move.moved = (sharded != 0 ? 1 : 2) * from.most * (n - 1) / n;
  return priced(from, to, move);
}

// The shards of `sharded` make up `whole`, in which the mesh dimensions `dims` are not sharded.
bool Pricing::make_up(const PricedLayout& whole, const PricedLayout& sharded, MeshDims dims) {
  for (std::size_t d = 0; d < dims_.size(); ++d)
    if (whole.shardings[d] != sharded.shardings[d] &&
        !dims_[d].gathers(sharded.shardings[d], whole.shardings[d], dims))
      return false;
  return true;
}

// Whether the collective itself can describe the move: pieces of one or two tensor dimensions, in
// rank order. Otherwise pieces are packed.
bool Pricing::is_plain(const PricedLayout& from, const PricedLayout& to, const Move& move) {
  int changed = 0, gathered = 0, scattered = 0;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const int have = from.shardings[d], want = to.shardings[d];
    if (have == want || (!dims_[d].pair(have, want).needed && !dims_[d].pair(want, have).needed))
      continue;
    ++changed;
    DimShardings& shardings = dims_[d];
    if ((shardings[have].dims & move.dims) == move.dims && shardings.gathers(have, want, move.dims))
      gathered += shardings.ascends(have, move.dims);
    else if ((shardings[want].dims & move.dims) == move.dims &&
             shardings.gathers(want, have, move.dims))
      scattered += shardings.ascends(want, move.dims);
  }
  switch (move.kind) {
    case StepKind::AllGather: return changed == 1 && gathered == 1;
    case StepKind::ReduceScatter: return changed == 1 && scattered == 1;
    case StepKind::AllToAll: return changed == 2 && gathered == 1 && scattered == 1;
    default: return true;
  }
}

Move Pricing::priced(const PricedLayout& from, const PricedLayout& to, Move move) {
  if (!is_plain(from, to, move))
    move.copied += (move.kind == StepKind::ReduceScatter ? from : to).most +
                   (move.kind == StepKind::AllToAll ? move.moved : 0);
  move.time = time_of(communicates(move.kind), move.moved * width_, move.copied * width_,
                      slowest(links_, move.dims));
  return move;
}

// The most elements that any rank lacks.
double Pricing::missing(const PricedLayout& from, const PricedLayout& to, double enough) {
  double common = 1;
  for (std::size_t d = 0; d < dims_.size(); ++d) {
    const ShardingPair& pair = dims_[d].pair(from.shardings[d], to.shardings[d]);
    if (!pair.even) return missing_by_rank(from, to, enough);
    common *= pair.common;
  }
  return to.most - common;
}

// As missing(), rank by rank. Returns the result of a sample of ranks if it is above `enough`.
double Pricing::missing_by_rank(const PricedLayout& from, const PricedLayout& to, double enough) {
  struct Counts {
    const double *wanted, *kept;
  };
  InlineVector<Counts, 8> counts;
  for (std::size_t d = 0; d < dims_.size(); ++d)
    counts.push_back({dims_[d].by_rank(to.shardings[d], to.shardings[d]).data(),
                      dims_[d].by_rank(from.shardings[d], to.shardings[d]).data()});
  const auto most_of = [&](unsigned step) {
    double most = 0;
    for (unsigned rank = 0; rank < grid_.codes; rank += step) {
      double wanted = 1, kept = 1;
      for (const Counts& along : counts) {
        wanted *= along.wanted[rank];
        kept *= along.kept[rank];
      }
      most = std::max(most, wanted - kept);
    }
    return most;
  };
  const double seen = most_of(grid_.codes / 16 + 1);
  return seen > enough ? seen : most_of(1);
}

double Pricing::longest() const {
  const Link link = slowest(links_, ~0U);
  return 1 + time_of(true, 2 * numel_ * width_, 3 * numel_ * width_, link);
}

double Pricing::at_least(const PricedLayout& from, const PricedLayout& to) {
  MeshDims reduced = 0;
  for (int m = 0; m < grid_.ndim; ++m)
    if (from.layout[m].is_partial() && !(from.layout[m] == to.layout[m]) && grid_.size[nth(m)] > 1)
      reduced |= 1U << m;
  // What becomes Partial again may have been shards on the way: ranks that lack it fill in zeros.
  const bool expands = to.layout.has_partial();
  double come = 0;
  if (expands) {
    if (reduced == 0) return 0;
  } else if (reduced != 0) {
    // Reducing n terms of an element takes n - 1 messages, and one more for each further rank that
    // is to have the value: this many on the average rank.
    come = to.mean + (grid_.size_of(reduced) - 2.0) * numel_ / grid_.ranks;
  } else {
    come = missing(from, to, 0);
    if (come <= 0) return 0;
  }
  return fastest_.latency + come * width_ / fastest_.bytes_per_us;
}

}  // namespace coshard
