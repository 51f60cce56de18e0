// Working memory of a thread, and its tables of angles.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <thread>

#include "kernels/cpu/scratch.h"
#include "tests/kernels/samples.h"

namespace coshard::kernels {
namespace {

using namespace testing;

TEST(Scratch, SlotsAreAlignedApartAndGrow) {
  float* const a = cpu::scratch(0, 100);
  float* const b = cpu::scratch(1, 100);
  EXPECT_NE(a, b);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0U);
  EXPECT_EQ(cpu::scratch(0, 50), a);
  float* const large = cpu::scratch(0, 1 << 20);
  large[(1 << 20) - 1] = 1;
  EXPECT_EQ(cpu::scratch(1, 100), b);
  EXPECT_NE(cpu::scratch(2, 0), nullptr);
}

TEST(Scratch, EachThreadHasItsOwn) {
  float* const mine = cpu::scratch(0, 10);
  float* its = nullptr;
  std::thread([&] { its = cpu::scratch(0, 10); }).join();
  EXPECT_NE(its, mine);
  EXPECT_EQ(cpu::scratch(0, 10), mine);
}

const float* table_of(std::int64_t first, std::int64_t seq, const RopeTable* given = nullptr) {
  Rope args{};
  args.first_position = first;
  args.x.shape[1] = seq;
  args.x.shape[3] = 4;
  args.theta = 100;
  args.table = given;
  return cpu::rotary_table<float>(args);
}

TEST(Scratch, ARotaryTableHasCosThenSinOfEachPosition) {
  const float* const table = table_of(5, 2);
  EXPECT_FLOAT_EQ(table[0], std::cos(5.0F));
  EXPECT_FLOAT_EQ(table[1], static_cast<float>(std::cos(5 * 0.1)));
  EXPECT_FLOAT_EQ(table[2], std::sin(5.0F));
  EXPECT_FLOAT_EQ(table[4], std::cos(6.0F));
  EXPECT_FLOAT_EQ(table[7], static_cast<float>(std::sin(6 * 0.1)));
  EXPECT_EQ(table_of(5, 2), table);
  const RopeTable given{{1, 0.3F}, 2};
  EXPECT_FLOAT_EQ(table_of(5, 2, &given)[1], 2 * std::cos(5 * 0.3F));
  EXPECT_EQ(table_of(5, 2), table);
  for (int other = 0; other < 8; ++other) table_of(other, 3);
  EXPECT_FLOAT_EQ(table_of(6, 2)[0], std::cos(6.0F));
}

}  // namespace
}  // namespace coshard::kernels
