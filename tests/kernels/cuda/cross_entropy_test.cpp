#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/classes.h"
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels {
namespace {

using namespace testing;

struct Classes {
  std::int64_t rows, here, first, all;
  std::string text() const { return " " + std::to_string(rows) + "x" + std::to_string(here); }
};

const std::vector<Classes> kClasses = {{0, 4, 0, 4},       {3, 0, 4, 8},      {5, 1, 0, 1},
                                       {40, 31, 0, 31},    {9, 32, 8, 64},    {3, 257, 0, 257},
                                       {2, 1000, 0, 1000}, {2, 5000, 9, 6000}};

template <class F>
void each_classes(F&& f) {
  for (const DType dtype : kFloating) {
    for (const Classes& c : kClasses) f(dtype, c);
  }
}

CrossEntropyLoss loss_of(DType s, std::int64_t rows, double smoothing, bool summed) {
  CrossEntropyLoss args{};
  args.dtype = s;
  args.rows = rows;
  args.classes = 50;
  args.ignore = kIgnoredClass;
  args.smoothing = smoothing;
  args.summed = summed;
  return args;
}

TEST(CudaCrossEntropyStats, MatchTheReferenceWithNaNAndInfinities) {
  each_classes([](DType dtype, const Classes& c) {
    const DType s = statistic(dtype);
    Data logits = Data::normal(dtype, c.rows * c.here, 1, 2);
    const Data target = class_targets(c.rows, c.all);
    for (const bool smooth : {false, true}) {
      const Data max(s, c.rows), sum(s, c.rows), picked(s, c.rows), total(s, c.rows);
      const auto make = [&](auto at) {
        return CrossEntropyStats{dtype,
                                 c.rows,
                                 c.here,
                                 c.first,
                                 kIgnoredClass,
                                 at(logits),
                                 at(target),
                                 at(max),
                                 at(sum),
                                 at(picked),
                                 smooth ? at(total) : nullptr};
      };
      expect_as_reference("cross entropy" + c.text(), {&max, &sum, &picked, &total}, make, 5);
      spoil(logits, c.here + 5);
    }
  });
}

// The largest comes last, so that what was summed is scaled down each time; nothing but -infinity.
TEST(CudaCrossEntropyStats, ScaleWhatTheySummedWhenALargerOneComes) {
  for (const DType dtype : kFloating) {
    constexpr std::int64_t kRows = 2, kClasses = 2051;
    Data logits(dtype, kRows * kClasses);
    for (std::int64_t c = 0; c < kClasses; ++c) {
      logits.set(c, static_cast<double>(c) / 16);
      logits.set(kClasses + c, -INFINITY);
    }
    const Data target = class_targets(kRows, kClasses);
    const DType s = statistic(dtype);
    const Data max(s, kRows), sum(s, kRows), picked(s, kRows);
    expect_as_reference(
        "rising", {&max, &sum, &picked},
        [&](auto at) {
          return CrossEntropyStats{dtype,         kRows,      kClasses,   0,
                                   kIgnoredClass, at(logits), at(target), at(max),
                                   at(sum),       at(picked), nullptr};
        },
        5);
  }
}

TEST(CudaCrossEntropyJoin, MatchesTheReference) {
  for (const DType s : {DType::F32, DType::F64}) {
    for (const std::int64_t parts : {1, 2, 7}) {
      for (const std::int64_t kinds : {3, 4}) {
        for (const std::int64_t rows : {0, 1, 33, 300}) {
          Data found = Data::normal(s, parts * kinds * rows, 1, 20);
          for (std::int64_t i = 0; i < found.count(); ++i) {
            const bool is_sum = i / std::max<std::int64_t>(rows, 1) % kinds == 1;
            if (is_sum) found.set(i, std::abs(found.get(i)));
          }
          spoil(found, kinds * rows + 7);
          const Data joined(s, kinds * rows);
          expect_as_reference("join", {&joined}, [&](auto at) {
            return CrossEntropyJoin{s, parts, kinds, rows, at(found), at(joined)};
          });
        }
      }
    }
  }
}

TEST(CudaCrossEntropyGrad, MatchesTheReference) {
  each_classes([](DType dtype, const Classes& c) {
    const DType s = statistic(dtype);
    const Data logits = Data::normal(dtype, c.rows * c.here, 1, 2);
    const Data target = class_targets(c.rows, c.all);
    const Data max = Data::filled(s, c.rows, 3);
    const Data sum = Data::filled(s, c.rows, 4.5);
    const Data scale = Data::normal(s, c.rows, 4);
    for (const double smoothing : {0.0, 0.1}) {
      const Data dlogits(dtype, c.rows * c.here);
      expect_as_reference("cross entropy gradient" + c.text(), {&dlogits}, [&](auto at) {
        return CrossEntropyGrad{dtype,     c.rows,    c.here,     c.first,    kIgnoredClass,
                                smoothing, c.all,     at(logits), at(target), at(max),
                                at(sum),   at(scale), at(dlogits)};
      });
    }
  });
}

TEST(CudaCrossEntropyLoss, MatchesTheReferencePerRowAndSummed) {
  for (const DType s : {DType::F32, DType::F64}) {
    for (const std::int64_t rows : {0, 1, 31, 33, 300, 2500}) {
      for (const bool summed : {false, true}) {
        const Data target = class_targets(rows, 50);
        const Data sum = Data::filled(s, rows, 20), picked = Data::normal(s, rows, 1);
        const Data total = Data::normal(s, rows, 2), lse = Data::normal(s, rows, 3);
        const Data loss(s, summed ? 1 : rows), count(s, summed ? 1 : rows);
        for (const double smoothing : {0.0, 0.1}) {
          const auto make = [&](auto at) {
            CrossEntropyLoss args = loss_of(s, rows, smoothing, summed);
            args.target = at(target);
            args.sum = at(sum);
            args.picked = at(picked);
            args.total = smoothing == 0 ? nullptr : at(total);
            args.lse = at(lse);
            args.loss = at(loss);
            args.count = at(count);
            return args;
          };
          expect_as_reference("loss", {&lse, &loss, &count}, make);
        }
      }
    }
  }
}

TEST(CudaCrossEntropyLoss, LeavesATargetThatIsNoClassForTheHost) {
  Data target = class_targets(7, 50);
  target.set(6, 50);
  const Data ones = Data::filled(DType::F32, 7, 1);
  const Data lse(DType::F32, 7), loss(DType::F32, 7), count(DType::F32, 7);
  OnDevice on;
  CrossEntropyLoss args = loss_of(DType::F32, 7, 0, false);
  args.target = on.put(target);
  args.sum = on.put(ones);
  args.picked = on.put(ones);
  args.lse = on.put(lse);
  args.loss = on.put(loss);
  args.count = on.put(count);
  on.run(args);
  EXPECT_THROW(on.get(loss), Error);
}

}  // namespace
}  // namespace coshard::kernels
