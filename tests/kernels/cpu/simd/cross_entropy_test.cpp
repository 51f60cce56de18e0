#include <range/v3/view/cartesian_product.hpp>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

struct Outputs {
  Data max, sum, picked, total, dlogits;
};

template <class Run>
Outputs entropy(DType dtype, std::int64_t rows, std::int64_t classes, std::int64_t first,
                const Data& logits, const Data& target, double smoothing, Run run) {
  const DType s = statistic(dtype);
  Outputs o{{s, rows}, {s, rows}, {s, rows}, {s, rows}, {dtype, rows * classes}};
  const Data scale = Data::normal(s, rows, 9);
  run(CrossEntropyStats{dtype, rows, classes, first, 5, logits.ptr(), target.ptr(), o.max.ptr(),
                        o.sum.ptr(), o.picked.ptr(), smoothing > 0 ? o.total.ptr() : nullptr});
  run(CrossEntropyGrad{dtype, rows, classes, first, 5, smoothing, 3 * classes, logits.ptr(),
                       target.ptr(), o.max.ptr(), o.sum.ptr(), scale.ptr(), o.dlogits.ptr()});
  return o;
}

TEST(CrossEntropy, MatchesTheReferenceOnAClassShard) {
  constexpr std::int64_t kRows[] = {0, 1, 40}, kClasses[] = {1, 17, 256, 300};
  constexpr double kSmoothing[] = {0, 0.1};
  for (const auto& [dtype, rows, classes, smoothing] :
       ranges::views::cartesian_product(kFloating, kRows, kClasses, kSmoothing)) {
    const Data logits = Data::normal(dtype, rows * classes, 1, 3);
    const Data target = Data::integers(DType::I64, rows, 2, 0, int(3 * classes) - 1);
    const auto got = entropy(dtype, rows, classes, classes, logits, target, smoothing,
                             [](const auto& args) { cpu::run(args); });
    const auto want = entropy(dtype, rows, classes, classes, logits, target, smoothing,
                              [](const auto& args) { reference::run(args); });
    expect_close(got.max, want.max, "max");
    expect_close(got.sum, want.sum, "sum");
    expect_close(got.picked, want.picked, "picked");
    expect_close(got.total, want.total, tolerance(statistic(dtype)) * 5, "total");
    expect_close(got.dlogits, want.dlogits, "dlogits");
  }
}

// Two ranks' classes joined are those of one that has them all; of a row that is -infinity in one
// rank or both there is no exponent to be taken.
TEST(CrossEntropy, JoinsWhatRanksFoundOfTheirClasses) {
  constexpr std::int64_t kRows = 5, kOwn = 17;
  for (DType dtype : kFloating) {
    const DType s = statistic(dtype);
    Data all = Data::normal(dtype, kRows * 2 * kOwn, 1, 3);
    for (std::int64_t c = 0; c < 2 * kOwn; ++c) {
      if (c < kOwn) all.set(2 * kOwn + c, -INFINITY);
      all.set(4 * kOwn + c, -INFINITY);
    }
    const Data target = Data::integers(DType::I64, kRows, 2, 0, 2 * kOwn - 1);
    const auto find = [&](const Data& logits, std::int64_t classes, std::int64_t first, Data& to,
                          std::int64_t at) {
      const auto row = [&](std::int64_t kind) {
        return static_cast<char*>(to.ptr()) +
               (at + kind) * kRows * static_cast<std::int64_t>(size_of(s));
      };
      cpu::run(CrossEntropyStats{dtype, kRows, classes, first, 5, logits.ptr(), target.ptr(),
                                 row(0), row(1), row(2), row(3)});
    };
    Data want(s, 4 * kRows), found(s, 8 * kRows), got(s, 4 * kRows);
    find(all, 2 * kOwn, 0, want, 0);
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      Data own(dtype, kRows * kOwn);
      for (std::int64_t i = 0; i < kRows * kOwn; ++i)
        own.set(i, all.get(i / kOwn * 2 * kOwn + rank * kOwn + i % kOwn));
      find(own, kOwn, rank * kOwn, found, 4 * rank);
    }
    cpu::run(CrossEntropyJoin{s, 2, 4, kRows, found.ptr(), got.ptr()});
    expect_close(got, want, tolerance(s) * 5, "joined");
    EXPECT_EQ(got.get(kRows + 2), 0);
  }
}

TEST(CrossEntropy, GivesIgnoredRowsNoGradient) {
  const Data logits = Data::normal(DType::F32, 34, 1);
  const Data target = Data::filled(DType::I64, 2, 5);
  const auto got =
      entropy(DType::F32, 2, 17, 0, logits, target, 0.1, [](const auto& args) { cpu::run(args); });
  EXPECT_EQ(got.dlogits, Data(DType::F32, 34));
  EXPECT_EQ(got.picked.get(0), 0);
}

}  // namespace
}  // namespace coshard::kernels
