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

TEST(Rope, TakesThePositionsOfEachRow) {
  const RopeTable table{{1, 0.37F, 1e-4F}, 1.25F};
  const std::vector<std::int64_t> shape = {2, 5, 3, 6};
  Data positions = Data::integers(DType::I64, 10, 2, 0, 70'000);
  for (const DType dtype : kFloating) {
    for (const RopeTable* of : {&table, static_cast<const RopeTable*>(nullptr)}) {
      Data x = Data::normal(dtype, 180, 1), got(dtype, 180), want(dtype, 180), row(dtype, 18);
      const View at = positions.view({2, 5});
      cpu::run(Rope{got.view(shape), x.view(shape), 1, 1e4, false, of, at});
      reference::run(Rope{want.view(shape), x.view(shape), 1, 1e4, false, of, at});
      expect_close(got, want, "rope of positions");
      for (std::int64_t i = 0; i < 10; ++i) {  // each as a sequence of its own
        Data one(dtype, 18);
        for (std::int64_t e = 0; e < 18; ++e) one.set(e, x.get(i * 18 + e));
        const std::vector<std::int64_t> alone = {1, 1, 3, 6};
        const auto first = 1 + static_cast<std::int64_t>(positions.get(i));
        reference::run(Rope{row.view(alone), one.view(alone), first, 1e4, false, of});
        for (std::int64_t e = 0; e < 18; ++e) EXPECT_EQ(row.get(e), want.get(i * 18 + e));
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
