#include "dtensor/ops/op.h"

namespace coshard {
namespace {

Placement cut_at(const std::string& letters, char letter, Placement otherwise) {
  const auto at = letters.find(letter);
  return at == letters.npos ? otherwise : Shard(static_cast<int>(at));
}

bool may_cut(const Rule& rule, char letter, std::int64_t parts) {
  if (letter == '.' || rule.whole.find(letter) != rule.whole.npos) return false;
  for (const Rule::Even& even : rule.even)
    if (even.letter == letter && even.by % parts != 0) return false;
  return true;
}

}  // namespace

std::vector<Strategy> strategies_of(const Rule& rule, int n, int cut_before) {
  std::vector<Strategy> strategies;
  strategies.push_back({std::vector<Placement>(rule.in.size(), Replicate()),
                        std::vector<Placement>(rule.out.size(), Replicate())});
  std::string seen;
  for (const auto& letters : rule.in) {
    for (char letter : letters) {
      if (seen.find(letter) != seen.npos) continue;
      seen.push_back(letter);
      if (!may_cut(rule, letter, static_cast<std::int64_t>(n) * cut_before)) continue;
      Strategy strategy;
      for (const auto& in : rule.in) strategy.in.push_back(cut_at(in, letter, Replicate()));
      for (const auto& out : rule.out)
        strategy.out.push_back(cut_at(out, letter, Partial(rule.contraction)));
      strategies.push_back(std::move(strategy));
    }
  }
  strategies.insert(strategies.end(), rule.extra.begin(), rule.extra.end());
  return strategies;
}

Strategy partial_strategy(std::string_view in, std::string_view out, Reduce reduce) {
  Strategy strategy;
  for (char c : in) strategy.in.push_back(c == 'P' ? Partial(reduce) : Replicate());
  for (char c : out) strategy.out.push_back(c == 'P' ? Partial(reduce) : Replicate());
  return strategy;
}

}  // namespace coshard
