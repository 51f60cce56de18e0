// Attributes by value: what goes in as a struct comes out of it, and of it alone.
#include <coshard/dtensor/ops/attrs.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include "dtensor/ops/decision.h"
#include "tests/dtensor/ops/expect.h"

namespace coshard {
namespace {

using testing::counting;
using testing::on_ranks;
using testing::refusal;

enum class Colour : std::uint8_t { Red, Blue };
struct Inner {
  int dim;
  bool flag;
};
struct Everything {
  Inner inner;
  Shape shape;
  double number;
  Colour colour;
  Opaque seed;
};
struct Padded {  // 3 bytes between, 7 behind
  bool a;
  std::int32_t b;
  double number;
  bool c;
};
struct Number {
  double value;
};
struct OtherNumber {
  double value;
};
struct OnlyShape {
  Shape shape;
};
struct Drawn {
  double p;
  Opaque seed, stream;
};

TEST(Attrs, KeepEveryFieldOfTheStructThatTheyAre) {
  const Attrs attrs =
      Everything{{-7, true}, {4, 0, 5}, -2.5, Colour::Blue, {std::uint64_t{1} << 63}};
  const auto back = attrs.as<Everything>();
  EXPECT_EQ(back.inner.dim, -7);
  EXPECT_TRUE(back.inner.flag);
  EXPECT_EQ(back.shape, (Shape{4, 0, 5}));
  EXPECT_EQ(back.number, -2.5);
  EXPECT_EQ(back.colour, Colour::Blue);
  EXPECT_EQ(back.seed.value, std::uint64_t{1} << 63);
  const Attrs copy = attrs;
  EXPECT_EQ(copy.as<Everything>().shape, (Shape{4, 0, 5}));
  static_assert(std::is_trivially_copyable_v<Attrs>);
}

TEST(Attrs, OfAnotherStructAreRefused) {
  const Attrs number = Number{2};
  EXPECT_EQ(refusal([&] { number.as<OtherNumber>(); }),
            "the attributes of this call are Number, not OtherNumber");
  EXPECT_EQ(refusal([] { Attrs().as<Number>(); }),
            "the attributes of this call are none, not Number");
  EXPECT_FALSE(number == Attrs(OtherNumber{2}));
  EXPECT_FALSE(number == Attrs());
  EXPECT_TRUE(Attrs() == Attrs());
}

// The bytes between fields are no part of the value.
TEST(Attrs, AreEqualWhateverThePaddingHolds) {
  alignas(Padded) std::array<std::byte, sizeof(Padded)> zeros{}, ones;
  ones.fill(std::byte{0xff});
  const auto filled = [](auto& memory) -> Padded& {
    auto& all = *new (memory.data()) Padded;
    all.a = all.c = true;
    all.b = 3;
    all.number = 0.5;
    return all;
  };
  const Attrs a = filled(zeros), b = filled(ones);
  EXPECT_TRUE(a == b);
  EXPECT_TRUE(std::ranges::equal(a.ints(), b.ints()));
  Padded& other = filled(ones);
  other.c = false;
  EXPECT_FALSE(a == Attrs(other));
}

TEST(Attrs, AreEqualWhereEachFieldIs) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(Attrs(Number{nan}) == Attrs(Number{nan}));
  EXPECT_FALSE(Attrs(Number{0.0}) == Attrs(Number{-0.0}));
  EXPECT_FALSE(Attrs(Number{1}) == Attrs(Number{2}));
  EXPECT_FALSE(Attrs(Inner{1, true}) == Attrs(Inner{1, false}));
  EXPECT_FALSE(Attrs(OnlyShape{{1, 2}}) == Attrs(OnlyShape{{1, 2, 0}}));
  EXPECT_TRUE(Attrs(Drawn{0.5, {1}, {2}}) == Attrs(Drawn{0.5, {3}, {4}}));
  EXPECT_FALSE(Attrs(Drawn{0.5, {1}, {2}}) == Attrs(Drawn{0.25, {1}, {2}}));
}

// Too many entries are an error here as in any InlineVector.
TEST(Attrs, HoldTwentyIntegersAtMost) {
  struct Shapes {
    Shape a, b, c;
  };
  const Shape full = Shape::filled(8, 1);
  EXPECT_EQ(refusal([&] {
              static_cast<void>(Attrs(Shapes{full, full, full}));
            }),
            "more than 20 entries");
  EXPECT_EQ(Attrs(Shapes{full, {}, {2}}).as<Shapes>().c, Shape{2});
}

std::vector<TensorInfo> as_first(std::span<const TensorInfo> in, const Attrs&) { return {in[0]}; }

// The cache of decisions finds a call again by all of its attributes but the opaque ones.
TEST(Attrs, TellDecisionsApart) {
  on_ranks(1, [](World& world) -> Task<void> {
    static const OpDef op{
        .name = "drawn", .infer = as_first, .forward = [](OpContext& c) { c.out[0] = c.in[0]; }};
    const Tensor in[] = {counting(world, {3})};
    const CachesHeld held;
    const auto of = [&](const Attrs& attrs) { return decision_for(op, in, attrs, false, held); };
    const Decision* const first = of(Drawn{0.5, {1}, {2}});
    EXPECT_EQ(of(Drawn{0.5, {8}, {9}}), first);
    EXPECT_NE(of(Drawn{0.25, {1}, {2}}), first);
    EXPECT_EQ(of(Drawn{0.5, {0}, {0}}), first);
    co_return;
  });
}

}  // namespace
}  // namespace coshard
