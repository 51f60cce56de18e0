#include "dtensor/tape/origin.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <vector>

#include <coshard/dtensor/tape/tape.h>
#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/coro/rank_context.h>
#include "runtime/comm/collective.h"

namespace coshard {
namespace {

struct Given {
  std::uint64_t dtensors = 0, parameters = 0;
};
const RankLocal<Given> given;

// The text's, in every process.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char letter : text) hash = mix(hash, static_cast<unsigned char>(letter));
  return hash;
}

// Of the different origins of `in`, in order of size: the same in whatever order they come.
std::uint64_t hash_of_all(std::span<const Tensor> in) {
  std::array<std::uint64_t, 8> few;  // inputs of nearly every operator
  std::vector<std::uint64_t> many(in.size() > few.size() ? in.size() : 0);
  std::uint64_t* const begin = many.empty() ? few.data() : many.data();
  std::uint64_t* end = begin;
  for (const Tensor& t : in)
    if (t.defined() && t.origin() != 0) *end++ = t.origin();
  std::sort(begin, end);
  end = std::unique(begin, end);
  auto hash = static_cast<std::uint64_t>(end - begin);
  for (const std::uint64_t* origin = begin; origin != end; ++origin) hash = mix(hash, *origin);
  return hash;
}

std::string_view name_of(const Tensor& t) { return t.grad_meta() ? t.grad_meta()->name : ""; }

}  // namespace

Tensor numbered(Tensor tensor, Numbered kind) {
  tensor.set_origin(0);
  if (!Branch::current().is_main()) return tensor;
  const bool parameter = kind == Numbered::Parameter;
  const std::uint64_t number = ++(parameter ? given->parameters : given->dtensors);
  tensor.set_origin(2 * number + (parameter ? 1 : 0));
  return tensor;
}

std::uint64_t origin_of_result(std::span<const Tensor> in) {
  std::uint64_t first = 0, second = 0;
  for (const Tensor& t : in) {
    const std::uint64_t one = t.defined() ? t.origin() : 0;
    if (one == 0 || one == first || one == second) continue;
    if (second != 0) return hash_of_all(in);
    (first == 0 ? first : second) = one;
  }
  if (second == 0) return first;
  return mix(mix(2, std::min(first, second)), std::max(first, second));
}

Counts order_to_compare(std::span<const Tensor> list) {
  std::vector<std::int64_t> all;
  std::map<std::string_view, int> uses;
  for (const Tensor& t : list) ++uses[name_of(t)];
  for (const Tensor& t : list) {
    const std::string_view name = name_of(t);
    const bool shared = name.empty() || uses[name] > 1;  // roots of one class, "weight" of each
    const std::uint64_t one = shared ? t.origin() : hash_of(name);
    if (one == 0) return nullptr;
    all.push_back(static_cast<std::int64_t>(one));
  }
  return std::make_shared<const std::vector<std::int64_t>>(std::move(all));
}

std::uint64_t origin_of(const Counts& order) {
  if (order == nullptr) return 0;
  std::uint64_t hash = order->size();
  for (const std::int64_t one : *order) hash = mix(hash, static_cast<std::uint64_t>(one));
  return hash;
}

}  // namespace coshard
