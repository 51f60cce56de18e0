#include <limits>
#include <list>

#include "tests/kernels/cuda/on_device.h"

namespace coshard::kernels {
namespace {
using namespace testing;

TEST(CudaRope, MatchesTheReferenceOnPermutedViews) {
  constexpr std::int64_t kFirst = 100'000;
  // A GPU's pow is right to 2 ulp (CUDA math API, accuracy), which the position multiplies.
  constexpr double kAngle = 3 * std::numeric_limits<double>::epsilon() * kFirst;
  for (const DType dtype : kFloating) {
    for (const std::int64_t dim : {2, 6, 32, 64, 100}) {
      const std::vector<std::int64_t> shape = {2, 5, 3, dim};
      for (const auto& order : {std::vector<int>{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}}) {
        for (const bool inverse : {false, true}) {
          Data x = Data::normal(dtype, 30 * dim, 1);
          Data got(dtype, x.count());
          Data want = got;
          OnDevice on;
          on.run(Rope{on.put(got.view(shape, order), got), on.put(x.view(shape), x), kFirst, 5e5,
                      inverse});
          reference::run(Rope{want.view(shape, order), x.view(shape), kFirst, 5e5, inverse});
          expect_close(on.get(got), want, tolerance(dtype) + kAngle, "rope");
        }
      }
    }
  }
}

TEST(CudaRope, TurnsInPlaceAtAddressesThatAreNotAligned) {
  for (const DType dtype : kFloating) {
    const std::int64_t dim = 16;
    const std::vector<std::int64_t> shape = {1, 7, 2, dim};
    Data x = Data::normal(dtype, 14 * dim + 1, 1);
    Data want = x;
    OnDevice on;
    const auto shifted = [&](View view) {
      view.data = static_cast<std::byte*>(view.data) + size_of(dtype);
      return view;
    };
    const View here = shifted(on.put(x.view(shape), x));
    on.run(Rope{here, here, 3, 1e4, false});
    reference::run(Rope{shifted(want.view(shape)), shifted(want.view(shape)), 3, 1e4, false});
    expect_close(on.get(x), want, "rope in place");
  }
}

TEST(CudaRope, TakesThePositionsOfEachRow) {
  const RopeTable table{{1, 0.37F, 1e-4F}, 1.25F};
  for (const DType dtype : kFloating) {
    for (const std::int64_t dim : {6, 32}) {
      const std::vector<std::int64_t> shape = {2, 5, 3, dim};
      const RopeTable* of = dim == 6 ? &table : nullptr;
      Data x = Data::normal(dtype, 30 * dim, 1), got(dtype, x.count()), want(dtype, x.count());
      Data positions = Data::integers(DType::I64, 10, 2, 0, 70'000);
      OnDevice on;
      on.run(Rope{on.put(got.view(shape), got), on.put(x.view(shape), x), 1, 1e4, false, of,
                  on.put(positions.view({2, 5}), positions)});
      reference::run(
          Rope{want.view(shape), x.view(shape), 1, 1e4, false, of, positions.view({2, 5})});
      expect_close(on.get(got), want, tolerance(dtype) + 7e-11, "rope of positions");
    }
  }
}

// Of one device, over more tables than it keeps: other dimensions, bases, directions and positions.
TEST(CudaRope, TakesTheTableThatFits) {
  OnDevice on;
  std::list<Data> inputs;
  for (int turn = 0; turn < 2; ++turn) {
    for (const std::int64_t first : {0, 3, 250, 256, 1000, 0}) {
      for (const double theta : {1e4, 5e5}) {
        for (const std::int64_t dim : {6, 32}) {
          for (const DType dtype : {DType::F32, DType::F64}) {
            const std::vector<std::int64_t> shape = {1, 9, 2, dim};
            const bool inverse = (turn + first) % 2 == 1;
            Data& x = inputs.emplace_back(
                Data::normal(dtype, 18 * dim, static_cast<unsigned>(first + dim)));
            Data want = x;
            const View here = on.put(x.view(shape), x);
            on.run(Rope{here, here, first, theta, inverse});
            reference::run(Rope{want.view(shape), want.view(shape), first, theta, inverse});
            expect_close(on.get(x), want, "rope at " + std::to_string(first));
          }
        }
      }
    }
  }
}

TEST(CudaRope, TakesFrequenciesAndAScaling) {
  const RopeTable tables[] = {{{1, 0.37F, 1e-4F}, 1.25F}, {{0.5F, 0.5F, 0.01F}, 1}};
  OnDevice on;
  std::list<Data> inputs;
  for (const DType dtype : kFloating) {
    const std::vector<std::int64_t> shape = {2, 5, 3, 6};
    for (const RopeTable* table :
         {&tables[0], &tables[1], static_cast<const RopeTable*>(nullptr)}) {
      for (const bool inverse : {false, true}) {
        Data& x = inputs.emplace_back(Data::normal(dtype, 180, 1));
        Data want = x;
        const View here = on.put(x.view(shape), x);
        on.run(Rope{here, here, 1000, 1e4, inverse, table});
        reference::run(Rope{want.view(shape), want.view(shape), 1000, 1e4, inverse, table});
        expect_close(on.get(x), want, "rope by a table");
      }
    }
  }
}

TEST(CudaRope, RefusesMoreFrequenciesThanItTakes) {
  const RopeTable table{std::vector<float>(257, 0.5F), 1};
  Data x = Data::normal(DType::F32, 514, 1);
  OnDevice on;
  const View here = on.put(x.view({1, 1, 1, 514}), x);
  EXPECT_ANY_THROW(on.run(Rope{here, here, 0, 1e4, false, &table}));
}

TEST(CudaRope, TakesNoTokensAndNoOddDimension) {
  Data x = Data::normal(DType::F32, 3, 1);
  OnDevice on;
  const View odd = on.put(x.view({1, 1, 1, 3}), x);
  EXPECT_ANY_THROW(on.run(Rope{odd, odd, 0, 1e4, false}));
  const View none = on.put(x.view({1, 0, 1, 4}), x);
  on.run(Rope{none, none, 0, 1e4, false});
  EXPECT_EQ(on.get(x), x);
}

}  // namespace
}  // namespace coshard::kernels
