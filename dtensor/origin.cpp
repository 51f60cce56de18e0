#include "dtensor/origin.h"

#include <algorithm>
#include <string>
#include <vector>

#include <coshard/runtime/coro/branch.h>
#include <coshard/runtime/error.h>
#include "runtime/interned_text.h"

namespace coshard {
namespace {

const BranchLocal<std::uint64_t> numbers_given;

}  // namespace

// Only numbers have an order: of what the main branch makes, in the order of the program.
bool has_number(const Tensor& tensor) {
  const std::uint64_t origin = tensor.storage()->origin;
  return origin != 0 && origin >> 63 == 0;
}

// Branches may run in another order on other ranks, where they wait for what only a rank sees. So
// each counts by itself.
Tensor numbered(Tensor tensor) {
  const Branch& branch = Branch::current();
  const std::uint64_t number = ++numbers_given.own();
  const bool main = branch.child_path() == nullptr;
  tensor.storage()->origin = main ? number : with_origin(branch.id(), number);
  return tensor;
}

std::string_view order_of_creation(std::span<const Tensor> list) {
  std::vector<std::uint64_t> numbers;
  for (const Tensor& t : list)
    if (has_number(t)) numbers.push_back(t.storage()->origin);
  if (std::ranges::is_sorted(numbers)) return "";
  std::vector<std::uint64_t> sorted = numbers;
  std::ranges::sort(sorted);
  std::string text;
  const auto place = [&](std::size_t i) {
    return std::ranges::lower_bound(sorted, numbers[i]) - sorted.begin();
  };
  for (std::size_t i = 0, end = 0; i < numbers.size(); i = end) {
    for (end = i + 1; end < numbers.size() && place(end) == place(end - 1) + 1;) ++end;
    text += str_cat(i == 0 ? "" : ",", place(i));
    if (end - i > 1) text += str_cat("-", place(end - 1));
  }
  return interned(str_cat("tensors ", text, " in order of creation"));
}

}  // namespace coshard
