#include "dtensor/ops/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "dtensor/redistribute/planner.h"

namespace coshard {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Compared in this order: whether anything is communicated, then the time this takes, now and
// later.
struct Price {
  bool moves = false;
  double time = 0;
  auto operator<=>(const Price&) const = default;
};

// A strategy along one mesh dimension, and a lower bound of its time for any choice of the others.
struct Alternative {
  Strategy strategy;
  bool moves = false;
  double time = 0;  // for bytes; a collective's latency may be shared with other dimensions
};

class Choosing {
 public:
  Choosing(const Rule& rule, std::span<const TensorInfo> in, std::span<const Layout> now,
           std::span<const TensorInfo> out, const MeshCosts& mesh, bool keep)
      : rule_(rule), in_(in), now_(now), out_(out), mesh_(mesh), keep_(keep) {
    costs_.resize(in.size());
    made_.in.assign(in.size(), Layout::filled(dims(), Replicate()));
    made_.out.assign(out.size(), Layout::filled(dims(), Replicate()));
    for (int m = 0; m < dims(); ++m) ranks_ *= size(m);
  }

  std::optional<Choice> run() {
    descend(0, Parts(), Price(), 0);
    return std::move(best_);
  }

 private:
  int dims() const { return static_cast<int>(mesh_.sizes.size()); }
  int size(int m) const { return mesh_.sizes[static_cast<std::size_t>(m)]; }

  // `least`: bound of the outer mesh dimensions, without latency; `latency`: the largest of these.
  void descend(int m, const Parts& parts, const Price& least, double latency) {
    if (m == dims()) return weigh();
    const std::vector<Alternative> alternatives = alternatives_at(m, parts);
    for (const Alternative& alternative : alternatives) {
      const Price so_far{least.moves || alternative.moves, least.time + alternative.time};
      const double slowest_so_far =
          alternative.moves ? std::max(latency, slowest(mesh_.links, 1U << m).latency) : latency;
      if (hopeless({so_far.moves, so_far.time + slowest_so_far})) continue;
      for (std::size_t i = 0; i < in_.size(); ++i) made_.in[i][m] = alternative.strategy.in[i];
      for (std::size_t i = 0; i < out_.size(); ++i) made_.out[i][m] = alternative.strategy.out[i];
      Parts inner = parts;
      if (alternative.strategy.axis) inner[alternative.strategy.axis] *= size(m);
      descend(m + 1, inner, so_far, slowest_so_far);
    }
  }

  // A complete combination.
  void weigh() {
    Price price;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      if (!in_[i].defined || rule_.in[i] == "*" || made_.in[i] == now_[i]) continue;
      const double limit = best_ ? best_price_.time - price.time : kNoLimit;
      const PlanCost change = costs_of(i).to(made_.in[i], limit);
      price.moves = price.moves || change.communicates;
      price.time += change.time;
      if (!std::isfinite(price.time) || hopeless(price)) return;
    }
    for (std::size_t i = 0; i < out_.size(); ++i) price.time += time_to_reduce(i, made_.out[i]);
    if (hopeless(price)) return;
    best_ = made_;
    best_price_ = price;
  }

  bool hopeless(const Price& price) const { return best_ && price >= best_price_; }

  PlanCosts& costs_of(std::size_t i) {
    if (!costs_[i]) costs_[i].emplace(costs_from(in_[i], now_[i]));
    return *costs_[i];
  }

  PlanCosts costs_from(const TensorInfo& info, const Layout& layout) const {
    return {mesh_.sizes, info.shape, static_cast<int>(size_of(info.dtype)), layout, mesh_.links};
  }

  // To reduce all Partials of an output later. The latency is not counted, since it may be shared:
  // Partials that are added are reduced together.
  double time_to_reduce(std::size_t i, const Layout& layout) {
    MeshDims partial = 0;
    for (int m = 0; m < dims(); ++m)
      if (layout[m].is_partial() && size(m) > 1) partial |= 1U << m;
    if (partial == 0) return 0;
    for (const auto& [output, known, time] : to_reduce_)
      if (output == i && known == layout) return time;
    const double time = costs_from(out_[i], layout).reduced().time;
    const double shared = slowest(mesh_.links, partial).latency;
    to_reduce_.emplace_back(i, layout, std::max(0.0, time - shared));
    return std::get<2>(to_reduce_.back());
  }

  // The feasible ones, cheapest first.
  std::vector<Alternative> alternatives_at(int m, const Parts& parts) const {
    std::vector<Placement> now;
    for (std::size_t i = 0; i < in_.size(); ++i)
      now.push_back(in_[i].defined ? now_[i][m] : Replicate());
    const auto whole = [](const Placement& p) { return p.is_replicate(); };
    const bool all_whole = std::ranges::all_of(now, whole);
    std::vector<Alternative> alternatives;
    bool kept = false;
    for (Strategy& strategy : strategies_of(rule_, size(m), parts, now)) {
      if (all_whole && !std::ranges::all_of(strategy.in, whole)) continue;
      if (!can_be_had(strategy, now, m) || idles(strategy, m)) continue;
      const bool keeps = keep_ && strategy.in[0] == now[0] && strategy.out[0] == now[0];
      if (kept && !keeps) continue;
      if (keeps && !kept) alternatives.clear();
      kept = keeps;
      Alternative alternative{std::move(strategy)};
      bound(alternative, now, m);
      alternatives.push_back(std::move(alternative));
    }
    std::ranges::stable_sort(alternatives, [](const Alternative& a, const Alternative& b) {
      return Price{a.moves, a.time} < Price{b.moves, b.time};
    });
    return alternatives;
  }

  // Only a replica may become Partial, and only if another input is Partial or sharded.
  bool can_be_had(const Strategy& strategy, std::span<const Placement> now, int m) const {
    bool shares = false, reason = false;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const Placement& want = strategy.in[i];
      const bool alike = want == now[i] || (size(m) == 1 && now[i].is_replicate());
      if (!in_[i].defined) continue;
      reason = reason || want.is_sharded() || (want.is_partial() && alike);
      if (!want.is_partial() || alike) continue;
      if (!now[i].is_replicate()) return false;
      shares = true;
    }
    return !shares || reason;
  }

  // Whether it would leave ranks without elements although no input's layout does so now.
  bool idles(const Strategy& strategy, int m) const {
    bool idle = false;
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const Placement& want = strategy.in[i];
      if (!in_[i].defined || !want.is_sharded() || rule_.in[i] == "*") continue;
      bool lies_so = want == now_[i][m];
      std::int64_t part = in_[i].shape[static_cast<std::size_t>(want.dim)];
      if (part == 0) continue;
      for (int k = 0; k < m; ++k) {
        const bool cuts = made_.in[i][k].is_sharded(want.dim);
        if (cuts) part = smallest_part(part, made_.in[i][k], size(k));
        if (cuts || now_[i][k].is_sharded(want.dim))
          lies_so = lies_so && now_[i][k] == made_.in[i][k];
      }
      if (lies_so) return false;
      idle = idle || smallest_part(part, want, size(m)) == 0;
    }
    return idle;
  }

  static std::int64_t smallest_part(std::int64_t size, const Placement& cut, int n) {
    const std::int64_t chunk = cut.is_strided() ? chunk_of(size, cut.split, 0).size : size;
    return chunk_of(chunk, n, n - 1, cut.unit).size;
  }

  // A lower bound: assumes that all other mesh dimensions shard what this one moves, and that one
  // all_to_all reshards along all of them.
  void bound(Alternative& alternative, std::span<const Placement> now, int m) const {
    const double n = size(m);
    double bytes = 0;
    for (std::size_t i = 0; n > 1 && i < in_.size(); ++i) {
      const Placement& want = alternative.strategy.in[i];
      if (!in_[i].defined || want == now[i] || now[i].is_replicate()) continue;
      alternative.moves = true;
      const double times = now[i].is_partial() ? (want.is_sharded() ? 1 : 2)
                                               : (want.is_sharded() ? 1 / n / dims() : 1);
      bytes += times * (n - 1) *
               static_cast<double>(numel(in_[i].shape) *
                                   static_cast<std::int64_t>(size_of(in_[i].dtype))) /
               ranks_;
    }
    alternative.time = bytes / slowest(mesh_.links, 1U << m).bytes_per_us;
  }

  const Rule& rule_;
  std::span<const TensorInfo> in_;
  std::span<const Layout> now_;
  std::span<const TensorInfo> out_;
  const MeshCosts& mesh_;
  bool keep_;
  double ranks_ = 1;
  Choice made_;
  std::optional<Choice> best_;
  Price best_price_;
  std::vector<std::optional<PlanCosts>> costs_;                     // by input
  std::vector<std::tuple<std::size_t, Layout, double>> to_reduce_;  // by output and layout: us
};

}  // namespace

std::optional<Choice> choose_layouts(const Rule& rule, std::span<const TensorInfo> in,
                                     std::span<const Layout> now, std::span<const TensorInfo> out,
                                     const MeshCosts& mesh, bool keep) {
  return Choosing(rule, in, now, out, mesh, keep).run();
}

}  // namespace coshard
