#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/reference/lines.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels::reference {
namespace {

// a before b in ascending order; NaN is greater than every number.
template <class T>
bool less(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return a < b;
  } else {
    const auto x = static_cast<double>(a);
    const auto y = static_cast<double>(b);
    return x < y || (y != y && x == x);
  }
}

template <class T>
void arg_reduce_lines(const ArgReduce& args) {
  each_line(args, [&](std::int64_t first, std::int64_t line) {
    const T* x = as<T>(args.x) + first;
    std::int64_t best = 0;
    for (std::int64_t e = 1; e < args.extent; ++e) {
      const T value = x[e * args.inner];
      const T held = x[best * args.inner];
      if (held != held) break;
      const bool better = args.largest ? less(held, value) : less(value, held);
      if (value != value || better) best = e;
    }
    if (args.values != nullptr) as<T>(args.values)[line] = x[best * args.inner];
    as<std::int64_t>(args.indices)[line] = best;
  });
}

template <class T>
void sort_lines(const Sort& args) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(args.extent));
  each_line(args, [&](std::int64_t first, std::int64_t line) {
    const T* x = as<T>(args.x) + first;
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](std::int64_t a, std::int64_t b) {
      const T u = x[a * args.inner];
      const T v = x[b * args.inner];
      if (less(u, v)) return !args.descending;
      if (less(v, u)) return args.descending;
      return a < b;
    };
    if (args.k == args.extent) {
      std::sort(order.begin(), order.end(), before);
    } else {
      std::partial_sort(order.begin(), order.begin() + args.k, order.end(), before);
    }
    const std::int64_t to = line / args.inner * args.k * args.inner + line % args.inner;
    for (std::int64_t i = 0; i < args.k; ++i) {
      as<T>(args.values)[to + i * args.inner] = x[order[i] * args.inner];
      as<std::int64_t>(args.indices)[to + i * args.inner] = order[i];
    }
  });
}

}  // namespace

void run(const ArgReduce& args) {
  const bool nothing = args.outer * args.inner == 0;
  CS_REQUIRE(args.extent > 0 || nothing, "argmax, argmin: the dimension is empty");
  with_any(args.dtype, [&](auto tag) { arg_reduce_lines<decltype(tag)>(args); });
}

void run(const Sort& args) {
  CS_REQUIRE(args.k >= 0 && args.k <= args.extent, "sort, topk: k ", args.k,
             " is out of range for ", args.extent, " elements");
  with_any(args.dtype, [&](auto tag) { sort_lines<decltype(tag)>(args); });
}

}  // namespace coshard::kernels::reference
