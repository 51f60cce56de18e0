#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {
using namespace testing;

TEST(Rope, MatchesTheReferenceOnPermutedViews) {
  for (DType dtype : kFloating) {
    for (std::int64_t dim : {2, 6, 32, 64, 100}) {
      const std::vector<std::int64_t> shape = {2, 5, 3, dim};
      Data x = Data::normal(dtype, 30 * dim, 1);
      for (const auto& order : {std::vector<int>{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}}) {
        for (bool inverse : {false, true}) {
          Data got(dtype, x.count());
          Data want = got;
          cpu::run(Rope{got.view(shape, order), x.view(shape), 1000, 10000, inverse});
          reference::run(Rope{want.view(shape, order), x.view(shape), 1000, 10000, inverse});
          expect_close(got, want, "rope");
        }
      }
    }
  }
}

TEST(Rope, TakesFrequenciesAndAScaling) {
  const RopeTable tables[] = {{{1, 0.37F, 1e-4F}, 1.25F}, {{0.5F, 0.5F, 0.01F}, 1}};
  for (const DType dtype : kFloating) {
    const std::vector<std::int64_t> shape = {2, 5, 3, 6};
    const Data x = Data::normal(dtype, 180, 1);
    for (const RopeTable* table :
         {&tables[0], &tables[1], static_cast<const RopeTable*>(nullptr)}) {
      for (const bool inverse : {false, true}) {
        Data from = x, got(dtype, 180), want(dtype, 180);
        cpu::run(Rope{got.view(shape), from.view(shape), 60'000, 1e4, inverse, table});
        reference::run(Rope{want.view(shape), from.view(shape), 60'000, 1e4, inverse, table});
        expect_close(got, want, "rope by a table");
      }
    }
  }
}

TEST(Rope, IsUndoneByItsInverse) {
  Data x = Data::normal(DType::F64, 2 * 7 * 3 * 16, 1);
  Data y = x;
  const std::vector<std::int64_t> shape = {2, 7, 3, 16};
  cpu::run(Rope{y.view(shape), y.view(shape), 5, 500, false});
  EXPECT_NE(x, y);
  cpu::run(Rope{y.view(shape), y.view(shape), 5, 500, true});
  expect_close(y, x, "rope twice");
}

TEST(Rope, RefusesAnOddDimension) {
  Data x = Data::normal(DType::F32, 3, 1);
  EXPECT_ANY_THROW(cpu::run(Rope{x.view({1, 1, 1, 3}), x.view({1, 1, 1, 3}), 0, 1e4, false}));
}

}  // namespace
}  // namespace coshard::kernels
