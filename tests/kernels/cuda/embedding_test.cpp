#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {
using namespace testing;

struct Table {
  std::int64_t count, rows, dim, first;
};
const std::vector<Table> kTables = {{0, 7, 5, 0},   {1, 1, 1, 0},      {31, 7, 33, 0},
                                    {100, 9, 8, 3}, {40, 200, 64, 50}, {2500, 11, 3, 0}};

template <class F>
void each_table(F&& f) {
  for (const DType dtype : kFloating) {
    for (const DType ids : {DType::I64, DType::I32}) {
      for (const Table& t : kTables) {
        // also ids that are before and behind the rows of this rank
        f(dtype, t, Data::integers(ids, t.count, 1, 0, static_cast<int>(t.first * 2 + t.rows - 1)));
      }
    }
  }
}

TEST(CudaEmbedding, CopiesItsRowsAndGivesZeroForThoseOfOthers) {
  each_table([](DType dtype, const Table& t, const Data& ids) {
    const Data weight = Data::normal(dtype, t.rows * t.dim, 2);
    const Data out(dtype, t.count * t.dim);
    const auto make = [&](auto at) {
      return Embedding{dtype,   ids.dtype(), t.count,    t.rows, t.dim,
                       t.first, at(ids),     at(weight), at(out)};
    };
    expect_as_reference("embedding", {&out}, make, 0);
  });
}

TEST(CudaEmbeddingGrad, SumsTheRowsOfEqualIds) {
  each_table([](DType dtype, const Table& t, const Data& ids) {
    const Data dout = Data::normal(dtype, t.count * t.dim, 2);
    for (const std::int64_t padding : {std::int64_t{-1}, t.first + t.rows / 2}) {
      const Data dweight = Data::filled(dtype, t.rows * t.dim, 7);
      const auto make = [&](auto at) {
        return EmbeddingGrad{dtype,   ids.dtype(), t.count, t.rows,   t.dim,
                             t.first, padding,     at(ids), at(dout), at(dweight)};
      };
      expect_as_reference("embedding gradient", {&dweight}, make, 5);
    }
  });
}

}  // namespace
}  // namespace coshard::kernels
