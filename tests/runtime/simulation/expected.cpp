// The sequential meaning of a collective, in plain loops.
#include <algorithm>
#include <numeric>

#include "tests/runtime/simulation/random_program.h"

namespace coshard::testing {
namespace {

using Values = std::vector<double>;

std::int64_t total(const Node& node) {
  return std::accumulate(node.counts.begin(), node.counts.end(), std::int64_t{0});
}
std::int64_t before(const Node& node, int member) {
  return std::accumulate(node.counts.begin(), node.counts.begin() + member, std::int64_t{0});
}
const std::vector<int>& members_of(const RandomProgram& program, const Node& node) {
  return program.groups[static_cast<std::size_t>(node.group)];
}

std::int64_t sends(const RandomProgram& program, const Node& node, int member) {
  const int members = static_cast<int>(members_of(program, node).size());
  switch (node.kind) {
    case CollectiveKind::AllReduce:
    case CollectiveKind::ReduceScatter: return total(node);
    case CollectiveKind::AllGather: return node.counts[static_cast<std::size_t>(member)];
    case CollectiveKind::Broadcast:
    case CollectiveKind::Scatter:
    case CollectiveKind::Send: return member == node.root ? total(node) : 0;
    case CollectiveKind::AllToAll: {
      std::int64_t sum = 0;
      for (int b = 0; b < members; ++b) sum += block(node, member, b);
      return sum;
    }
    default: return 0;
  }
}

double combine(Reduce reduce, double a, double b) {
  if (reduce == Reduce::Min) return std::min(a, b);
  if (reduce == Reduce::Max) return std::max(a, b);
  return a + b;
}

Values slice(const Values& values, std::int64_t from, std::int64_t count) {
  return {values.begin() + from, values.begin() + from + count};
}

Values reduced(const RandomProgram& program, const Node& node) {
  Values sum;
  for (const int rank : members_of(program, node)) {
    const Values its = contribution(program, node, rank);
    if (sum.empty()) {
      sum = its;
    } else {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = combine(node.reduce, sum[i], its[i]);
    }
  }
  return sum;
}

// What each member has for `me`, in order.
Values gathered(const RandomProgram& program, const Node& node, int me) {
  Values all;
  const std::vector<int>& group = members_of(program, node);
  for (int a = 0; a < static_cast<int>(group.size()); ++a) {
    const Values its = contribution(program, node, group[static_cast<std::size_t>(a)]);
    std::int64_t from = 0, count = static_cast<std::int64_t>(its.size());
    if (node.kind == CollectiveKind::AllToAll) {
      for (int b = 0; b < me; ++b) from += block(node, a, b);
      count = block(node, a, me);
    }
    all.insert(all.end(), its.begin() + from, its.begin() + from + count);
  }
  return all;
}

}  // namespace

int rank_in(const std::vector<int>& group, int rank) {
  const auto found = std::ranges::find(group, rank);
  return found == group.end() ? -1 : static_cast<int>(found - group.begin());
}

std::int64_t block(const Node& node, int a, int b) { return (node.number + 3 * a + 5 * b) % 4; }

// Small whole numbers, so that every order of adding gives the same.
Values contribution(const RandomProgram& program, const Node& node, int rank) {
  const int me = rank_in(members_of(program, node), rank);
  Values values(static_cast<std::size_t>(sends(program, node, me)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(node.number * 131 + rank * 17 + static_cast<int>(i % 89) * 7);
  return values;
}

Values expected(const RandomProgram& program, const Node& node, int rank) {
  const std::vector<int>& group = members_of(program, node);
  const int me = rank_in(group, rank);
  const auto root = [&] {
    return contribution(program, node, group[static_cast<std::size_t>(node.root)]);
  };
  const auto mine = [&](const Values& whole) {
    return slice(whole, before(node, me), node.counts[static_cast<std::size_t>(me)]);
  };
  switch (node.kind) {
    case CollectiveKind::AllReduce: return reduced(program, node);
    case CollectiveKind::ReduceScatter: return mine(reduced(program, node));
    case CollectiveKind::AllGather:
    case CollectiveKind::AllToAll: return gathered(program, node, me);
    case CollectiveKind::Broadcast: return root();
    case CollectiveKind::Scatter: return mine(root());
    case CollectiveKind::Send: return me == node.to && node.to != node.root ? root() : Values();
    default: return {};
  }
}

}  // namespace coshard::testing
