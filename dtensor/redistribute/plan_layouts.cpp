#include "dtensor/redistribute/plan_layouts.h"

#include <algorithm>
#include <tuple>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {
namespace {

std::size_t entry_of(int i) { return static_cast<std::size_t>(i); }

// What distinguishes one set of layouts from another.
struct Question {
  std::vector<int> mesh_shape;
  std::vector<bool> shards;                   // by tensor dimension: whether it may be sharded
  std::vector<std::vector<Placement>> given;  // by mesh dimension: Partials and StridedShards
  bool nests = true;  // shards of a tensor dimension in any order; otherwise in that of the mesh
  friend bool operator==(const Question&, const Question&) = default;
};

void add(std::vector<Placement>& list, const Placement& placement) {
  if (std::ranges::find(list, placement) == list.end()) list.push_back(placement);
}

Question question_of(const std::vector<int>& mesh_shape, int ndim, const Layout& from,
                     const Layout& to) {
  Question asked{mesh_shape, std::vector<bool>(entry_of(ndim), true), {}};
  const bool adds = std::ranges::any_of(
      from, [](const Placement& p) { return p == Partial() || p == Partial(Reduce::Avg); });
  for (int m = 0; m < from.ndim(); ++m) {
    std::vector<Placement>& given = asked.given.emplace_back();
    if (mesh_shape[entry_of(m)] == 1) continue;
    for (const Placement& p : {from[m], to[m]})
      if (p.is_partial() || p.is_strided()) add(given, p);
    if (adds) add(given, Partial());
  }
  return asked;
}

class Generator {
 public:
  Generator(const Question& asked, std::size_t most) : asked_(asked), most_(most) {
    layout_ = Layout::filled(static_cast<int>(asked.mesh_shape.size()), Replicate());
    nested_.resize(asked.shards.size());
  }

  // Empty if there are more than `most`.
  std::vector<Layout> run() {
    descend(layout_.ndim() - 1);
    if (all_.size() > most_) return {};
    // A StridedShard of the source may come in several nestings, and one of them may match.
    std::ranges::sort(all_, [](const Layout& a, const Layout& b) {
      const auto key = [](const Placement& p) {
        return std::tuple(p.kind, p.reduce, p.dim, p.split, p.unit);
      };
      return std::ranges::lexicographical_compare(a, b, {}, key, key);
    });
    all_.erase(std::unique(all_.begin(), all_.end()), all_.end());
    all_.shrink_to_fit();
    return std::move(all_);
  }

 private:
  // Chooses the placement of mesh dimension m; the inner ones are chosen.
  void descend(int m) {
    if (all_.size() > most_) return;
    if (m < 0) {
      all_.push_back(layout_);
      return;
    }
    const auto& given = asked_.given[entry_of(m)];
    place(m, Replicate());
    if (asked_.mesh_shape[entry_of(m)] == 1) return;
    for (const Placement& p : given)
      if (p.is_sharded())
        shard(m, p.dim, &p);
      else
        place(m, p);
    for (int d = 0; d < static_cast<int>(nested_.size()); ++d)
      if (asked_.shards[entry_of(d)]) shard(m, d, nullptr);
  }

  void place(int m, const Placement& placement) {
    layout_[m] = placement;
    descend(m - 1);
  }

  // Mesh dimension m shards tensor dimension d, nested in any order with the inner ones that do:
  // matching them, or as `given`.
  void shard(int m, int d, const Placement* given) {
    int before = 1;
    for (std::size_t i = 0; i <= nested_[entry_of(d)].size(); ++i) {
      std::vector<int>& order = nested_[entry_of(d)];
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(i), m);
      place(m, given != nullptr ? *given : before == 1 ? Shard(d) : StridedShard(d, before));
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
      if (!asked_.nests) return;
      if (i < order.size()) before *= asked_.mesh_shape[entry_of(order[i])];
    }
  }

  const Question& asked_;
  std::size_t most_;
  Layout layout_;
  std::vector<std::vector<int>> nested_;  // by tensor dimension: the mesh dimensions that shard it
  std::vector<Layout> all_;
};

// Asks for fewer layouts: with each `step` more is left out.
void restrict_to_fewer(Question& asked, int step, const Shape& shape, const Layout& from,
                       const Layout& to) {
  if (step == 1) {
    const auto largest = std::ranges::max_element(shape) - shape.begin();
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      const auto shards = [d](const Placement& p) { return p.is_sharded(d); };
      asked.shards[entry_of(d)] =
          d == largest || std::ranges::any_of(from, shards) || std::ranges::any_of(to, shards);
    }
  } else if (step == 2) {
    asked.nests = false;
  } else {
    asked.shards.assign(asked.shards.size(), false);
    for (int m = 0; m < from.ndim(); ++m)
      for (const Placement& p : {from[m], to[m]})
        if (p.is_sharded() && asked.mesh_shape[entry_of(m)] > 1) add(asked.given[entry_of(m)], p);
  }
}

constexpr int kLastStep = 3;

struct KeptLayouts {
  Question asked;
  std::shared_ptr<const std::vector<Layout>> layouts;  // none: there are too many
};

}  // namespace

std::shared_ptr<const std::vector<Layout>> plan_layouts(const std::vector<int>& mesh_shape,
                                                        const Shape& shape, const Layout& from,
                                                        const Layout& to) {
  static const RankLocal<std::vector<KeptLayouts>> kept;
  Question asked = question_of(mesh_shape, static_cast<int>(shape.size()), from, to);
  const auto several = std::ranges::count_if(mesh_shape, [](int size) { return size > 1; });
  for (int step = 0;; ++step) {
    if (step > 0) restrict_to_fewer(asked, step, shape, from, to);
    if (several > 5 && asked.nests) continue;
    auto found = std::ranges::find(*kept, asked, &KeptLayouts::asked);
    if (found == kept->end()) {
      std::size_t total = 0;
      for (const KeptLayouts& one : *kept) total += one.layouts ? 1 + one.layouts->size() : 1;
      if (total > 2 * kMostLayouts) kept->clear();
      auto all = Generator(asked, step == kLastStep ? ~std::size_t{0} : kMostLayouts).run();
      auto layouts =
          all.empty() ? nullptr : std::make_shared<const std::vector<Layout>>(std::move(all));
      found = kept->insert(kept->end(), {asked, std::move(layouts)});
    }
    if (found->layouts) return found->layouts;
  }
}

}  // namespace coshard
