// The arithmetic of reductions between buffers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/comm/local/host/reduce.h"
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

template <class T>
std::vector<T> reduced(Reduce reduce, std::vector<std::vector<T>> in) {
  std::vector<const void*> sources;
  for (auto& values : in) sources.push_back(values.data());
  std::vector<T> out(in[0].size()), other(in[0].size());
  void* targets[] = {out.data(), other.data()};
  reduce_into(dtype_of<T>, reduce, sources, targets, static_cast<std::int64_t>(out.size()));
  EXPECT_EQ(std::memcmp(out.data(), other.data(), out.size() * sizeof(T)), 0);
  return out;
}

TEST(ReduceInto, EachReductionOfSmallNumbers) {
  using F = std::vector<float>;
  const std::vector<F> in{{1, -2, 5}, {3, 4, 5}, {2, 7, -1}};
  EXPECT_EQ(reduced(Reduce::Sum, in), (F{6, 9, 9}));
  EXPECT_EQ(reduced(Reduce::Avg, in), (F{2, 3, 3}));
  EXPECT_EQ(reduced(Reduce::Min, in), (F{1, -2, -1}));
  EXPECT_EQ(reduced(Reduce::Max, in), (F{3, 7, 5}));
  EXPECT_EQ(reduced(Reduce::Product, in), (F{6, -56, -25}));
}

TEST(ReduceInto, IntegersWrapAndAverageTowardsZero) {
  using I = std::vector<std::int64_t>;
  EXPECT_EQ(reduced<std::int64_t>(Reduce::Avg, {{-7, 7}, {0, 0}}), (I{-3, 3}));
  EXPECT_EQ(reduced<std::int64_t>(Reduce::Sum, {{INT64_MAX}, {1}}), I{INT64_MIN});
}

TEST(ReduceInto, NaNWinsWhicheverRankHasIt) {
  for (const std::size_t at : {0U, 1U, 2U}) {
    std::vector<std::vector<double>> in{{1}, {2}, {3}};
    in[at][0] = std::nan("");
    EXPECT_TRUE(std::isnan(reduced(Reduce::Max, in)[0])) << at;
    EXPECT_TRUE(std::isnan(reduced(Reduce::Min, in)[0])) << at;
  }
}

TEST(ReduceInto, ShortFloatsAreRoundedOnce) {
  // 256 + 1 + 1 is 258 in f32; in bf16 256 + 1 would be 256 again, twice.
  const std::vector<std::vector<BFloat16>> in{{BFloat16(256)}, {BFloat16(1)}, {BFloat16(1)}};
  EXPECT_EQ(static_cast<float>(reduced(Reduce::Sum, in)[0]), 258);
}

}  // namespace
}  // namespace coshard::testing
