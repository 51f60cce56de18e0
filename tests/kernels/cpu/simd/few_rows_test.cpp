#include "kernels/cpu/few_rows.h"

#include <cmath>

#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

struct RowsCase {
  std::int64_t rows, columns, depth, pitch;  // pitch: of the rows of a, and of b's columns
  double alpha, beta;
};

// A view of `rows` lines of `width` elements, `pitch` apart; turned: its lines are columns.
View lines_of(Data& data, std::int64_t rows, std::int64_t width, std::int64_t pitch, bool turned) {
  View v = data.view({rows, pitch});
  v.shape[1] = width;
  if (turned) {
    std::swap(v.shape[0], v.shape[1]);
    std::swap(v.strides[0], v.strides[1]);
  }
  return v;
}

Matmul few_rows_of(const RowsCase& c, Data& out, Data& a, Data& b) {
  return {out.view({c.rows, c.columns}), lines_of(a, c.rows, c.depth, c.pitch, false),
          lines_of(b, c.columns, c.depth, c.pitch, true), c.alpha, c.beta};
}

TEST(FewRows, MatchTheReferenceForEverySize) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    for (std::int64_t rows = 1; rows <= cpu::kMostFewRows + 1; ++rows) {
      for (const auto& [columns, depth] :
           {std::pair{1, 5}, {2, 1}, {3, 16}, {9, 33}, {130, 64}, {17, 300}}) {
        for (const auto& [alpha, beta] : {std::pair{1.0, 0.0}, {0.5, 2.0}}) {
          const RowsCase c{rows, columns, depth, depth + (columns % 2) * 3, alpha, beta};
          Data a = Data::normal(dtype, rows * c.pitch, 1);
          Data b = Data::normal(dtype, columns * c.pitch, 2);
          Data got = Data::normal(dtype, rows * columns, 3), want = got;
          cpu::run(few_rows_of(c, got, a, b));
          reference::run(few_rows_of(c, want, a, b));
          expect_close(got, want, tolerance(dtype) * (1 + std::sqrt(double(depth))),
                       str_cat("rows ", rows, " columns ", columns, " depth ", depth));
        }
      }
    }
  }
}

// What a batch of prompts computes is what each computes alone.
TEST(FewRows, ARowDoesNotDependOnTheOthers) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const RowsCase all{cpu::kMostFewRows, 37, 100, 100, 1, 0}, one{1, 37, 100, 100, 1, 0};
    Data a = Data::normal(dtype, cpu::kMostFewRows * 100, 1), b = Data::normal(dtype, 3700, 2);
    Data whole(dtype, cpu::kMostFewRows * 37), row(dtype, 37), alone(dtype, 100);
    cpu::run(few_rows_of(all, whole, a, b));
    for (std::int64_t r = 0; r < cpu::kMostFewRows; ++r) {
      for (std::int64_t k = 0; k < 100; ++k) alone.set(k, a.get(r * 100 + k));
      cpu::run(few_rows_of(one, row, alone, b));
      for (std::int64_t n = 0; n < 37; ++n) EXPECT_EQ(row.get(n), whole.get(r * 37 + n));
    }
  }
}

}  // namespace
}  // namespace coshard::kernels
