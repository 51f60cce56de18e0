// The packed matmul of every instruction set, for the dtypes that each has.
#include <omp.h>

#include <limits>
#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/iota.hpp>

#include <coshard/runtime/error.h>
#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cpu/simd/sets.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;
namespace views = ranges::views;

View maybe_turned(Data& data, std::int64_t rows, std::int64_t columns, bool turn) {
  return data.view({rows, columns}, turn ? std::vector<int>{1, 0} : std::vector<int>{});
}

double packed_tolerance(DType dtype, std::int64_t depth) {
  return tolerance(dtype) * (1 + std::sqrt(double(depth)));
}

void expect_like_the_reference(const SimdSet& set, Matmul args, Data& got, const std::string& what,
                               double t) {
  Data want = got;
  set.of(got.dtype()).run(args);
  args.out.data = want.ptr();
  reference::run(args);
  expect_close(got, want, t, set.name + " " + what);
}

TEST(PackedMatmul, MatchesTheReferenceForEveryTransposition) {
  // Below, at and above the sizes of tiles, panels and few rows, and more than one depth.
  const std::vector<double> betas{0, -2};
  const std::int64_t sizes[][3] = {{1, 1, 1},   {1, 49, 400},  {7, 5, 3},   {8, 24, 16},
                                   {70, 1, 63}, {35, 50, 391}, {65, 66, 17}};
  for (const auto& [dtype, s, turns, beta] :
       views::cartesian_product(kFloating, sizes, views::iota(0, 4), betas)) {
    const auto [m, n, k] = s;
    Data a = Data::normal(dtype, m * k, 1), b = Data::normal(dtype, k * n, 2);
    const Data old = Data::normal(dtype, m * n, 3);
    const Matmul args{{},
                      maybe_turned(a, m, k, (turns & 1) != 0),
                      maybe_turned(b, k, n, (turns & 2) != 0),
                      beta == 0 ? 1 : 0.5,
                      beta};
    for (const bool turn_out : {false, true}) {
      Data want = old;
      Matmul call = args;
      call.out = maybe_turned(want, m, n, turn_out);
      reference::run(call);
      for (const SimdSet& set : kSets) {
        Data got = old;
        call.out.data = got.ptr();
        set.of(dtype).run(call);
        expect_close(got, want, packed_tolerance(dtype, k),
                     str_cat(set.name, " ", m, " ", n, " ", k, " ", turns, turn_out, " ", beta));
      }
    }
  }
}

TEST(PackedMatmul, TakesStridesThatAreNotOneAndWritesNothingElse) {
  for (const auto& [set, dtype] : views::cartesian_product(kSets, kFloating)) {
    Data a = Data::normal(dtype, 3 * 40 * 60, 1), b = Data::normal(dtype, 3 * 60 * 90, 2);
    Data got = Data::normal(dtype, 3 * 40 * 90, 3);
    const View left{a.ptr(), dtype, 3, {3, 20, 19}, {2400, 120, 3}};
    const View same_row{a.ptr(), dtype, 3, {3, 20, 19}, {2400, 0, 1}};
    const View right{b.ptr(), dtype, 3, {3, 19, 29}, {5400, 180, 2}};
    const View shared{b.ptr(), dtype, 3, {3, 19, 29}, {0, 1, 60}};
    const View spread{got.ptr(), dtype, 3, {3, 20, 29}, {3600, 180, 3}};
    const View rows{got.ptr(), dtype, 3, {3, 20, 29}, {3600, 90, 1}};
    const std::vector<View> lefts{left, same_row}, rights{right, shared}, outs{spread, rows};
    for (const auto& [x, y, out] : views::cartesian_product(lefts, rights, outs)) {
      expect_like_the_reference(set, {out, x, y, 1, 0}, got, "strides",
                                packed_tolerance(dtype, 19));
      expect_like_the_reference(set, {out, x, y, 2, .5}, got, "strides",
                                packed_tolerance(dtype, 19));
    }
  }
}

TEST(PackedMatmul, GivesTheSameBitsForOtherSplitsAndThreads) {
  constexpr std::int64_t kRows = 90, kColumns = 110, kDeep = 800;
  for (const DType dtype : kFloating) {
    Data a = Data::normal(dtype, kRows * kDeep, 1), b = Data::normal(dtype, kDeep * kColumns, 2);
    Data whole(dtype, kRows * kColumns), parts = whole, threads = whole, turned = whole;
    const View left = a.view({kRows, kDeep}), right = b.view({kDeep, kColumns});
    cpu::run_packed({whole.view({kRows, kColumns}), left, right});
    for (std::int64_t row = 0, some = 1; row < kRows; row += some, some = 1 + some * 3 % 7) {
      for (std::int64_t column = 0; column < kColumns; column += 37) {
        View out = parts.view({kRows, kColumns}), x = left, y = right;
        out.shape[0] = x.shape[0] = std::min(some, kRows - row);
        out.shape[1] = y.shape[1] = std::min<std::int64_t>(37, kColumns - column);
        const auto size = static_cast<std::int64_t>(size_of(dtype));
        out.data = static_cast<char*>(out.data) + (row * kColumns + column) * size;
        x.data = static_cast<char*>(x.data) + row * kDeep * size;
        y.data = static_cast<char*>(y.data) + column * size;
        cpu::run_packed({out, x, y});
      }
    }
    EXPECT_EQ(parts, whole) << dtype;
    const int before = omp_get_max_threads();
    omp_set_num_threads(3);
    cpu::run_packed({threads.view({kRows, kColumns}), left, right});
    omp_set_num_threads(before);
    EXPECT_EQ(threads, whole) << dtype;
    cpu::run(Copy{turned.view({kColumns, kRows}), [&] {
                    View v = whole.view({kRows, kColumns});
                    std::swap(v.shape[0], v.shape[1]);
                    std::swap(v.strides[0], v.strides[1]);
                    return v;
                  }()});
    Data product(dtype, kRows * kColumns);
    View x = right, y = left;
    for (View* v : {&x, &y}) {
      std::swap(v->shape[0], v->shape[1]);
      std::swap(v->strides[0], v->strides[1]);
    }
    cpu::run_packed({product.view({kColumns, kRows}), x, y});
    EXPECT_EQ(product, turned) << dtype;
  }
}

TEST(PackedMatmul, CarriesNaNAndInfinityIntoTheirRowsAndColumnsOnly) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::int64_t> widths{3, 40};
  for (const auto& [set, dtype, n] : views::cartesian_product(kSets, kFloating, widths)) {
    Data a = Data::filled(dtype, 20 * 30, 1), b = Data::filled(dtype, 30 * n, 1);
    Data got = Data::filled(dtype, 20 * n, std::nan(""));  // not read, as beta is 0
    a.set(2 * 30 + 7, std::nan(""));
    a.set(5 * 30 + 29, inf);
    b.set(1, -inf);
    set.of(dtype).run(Matmul{got.view({20, n}), a.view({20, 30}), b.view({30, n}), 1, 0});
    for (std::int64_t i = 0; i < 20; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        const double value = got.get(i * n + j);
        if (i == 2 || (i == 5 && j == 1)) {
          EXPECT_TRUE(std::isnan(value)) << set.name << i << " " << j;
        } else {
          EXPECT_EQ(value, i == 5 ? inf : j == 1 ? -inf : 30) << set.name << i << " " << j;
        }
      }
    }
  }
}

TEST(PackedMatmul, LeavesAnEmptyResultAndScalesByBetaWithoutADepth) {
  for (const DType dtype : kFloating) {
    Data a(dtype, 12), got = Data::filled(dtype, 12, 2), same = got;
    cpu::run_packed({got.view({0, 4}), a.view({0, 3}), a.view({3, 4}), 1, 0});
    EXPECT_EQ(got, same);
    cpu::run_packed({got.view({3, 4}), a.view({3, 0}), a.view({0, 4}), 1, .5});
    EXPECT_EQ(got, Data::filled(dtype, 12, 1));
  }
}

}  // namespace
}  // namespace coshard::kernels
