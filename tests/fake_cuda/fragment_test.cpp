// The emulator's tensor cores and asynchronous copies against known products: operands are laid out
// by hand as in the PTX ISA (mma.m16n8k16, ldmatrix), not by the code under test.
#include "runtime/device/cuda/fragment.h"

#include <random>

#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

// Element i of a lane's fragment (0..7 of A, 0..3 of B and C), in the words of the PTX ISA.
int row_of_a(int lane, int i) { return lane / 4 + (i % 4 >= 2 ? 8 : 0); }
int column_of_a(int lane, int i) { return lane % 4 * 2 + i % 2 + (i >= 4 ? 8 : 0); }
int row_of_b(int lane, int i) { return lane % 4 * 2 + i % 2 + (i >= 2 ? 8 : 0); }
int column_of_b(int lane) { return lane / 4; }
int row_of_c(int lane, int i) { return lane / 4 + (i >= 2 ? 8 : 0); }
int column_of_c(int lane, int i) { return lane % 4 * 2 + i % 2; }

template <class T>
struct MultiplyKernel : PerBlock {
  const FragmentA* a;
  const FragmentB* b;
  FragmentC* c;
  CS_BODY void operator()(Block& block) const {
    multiply_add<T>(block, c[block.thread()], a[block.thread()], b[block.thread()]);
  }
};

// Checks the product of the two warps of `MultiplyKernel` for small integers, which are exact.
template <class T>
void expect_product() {
  const auto device = fake_device();
  std::mt19937 random(3);
  std::uniform_int_distribution<int> draw(-8, 8);
  float a[2][16][16], b[2][16][8];
  for (auto& warp : a)
    for (auto& row : warp)
      for (float& x : row) x = static_cast<float>(draw(random));
  for (auto& warp : b)
    for (auto& row : warp)
      for (float& x : row) x = static_cast<float>(draw(random));
  const Numbers as(*device, 64 * 4), bs(*device, 64 * 2), cs(*device, 64 * 4);
  std::vector<float> a_words(64 * 4), b_words(64 * 2), c(64 * 4), want(64 * 4);
  const auto put = [](std::vector<float>& words, int at, int i, float value) {
    auto& word = words[static_cast<std::size_t>(at)];
    const std::uint32_t bits = T(value).bits;
    const auto before = std::bit_cast<std::uint32_t>(word);
    word = std::bit_cast<float>(i % 2 == 0 ? (before & 0xffff0000U) | bits
                                           : (before & 0xffffU) | bits << 16);
  };
  for (int thread = 0; thread < 64; ++thread) {
    const int warp = thread / 32, lane = thread % 32;
    for (int i = 0; i < 8; ++i)
      put(a_words, thread * 4 + i / 2, i, a[warp][row_of_a(lane, i)][column_of_a(lane, i)]);
    for (int i = 0; i < 4; ++i)
      put(b_words, thread * 2 + i / 2, i, b[warp][row_of_b(lane, i)][column_of_b(lane)]);
    for (int i = 0; i < 4; ++i) {
      const auto at = static_cast<std::size_t>(thread * 4 + i);
      c[at] = want[at] = static_cast<float>(draw(random));
      for (int k = 0; k < 16; ++k)
        want[at] += a[warp][row_of_c(lane, i)][k] * b[warp][k][column_of_c(lane, i)];
    }
  }
  as.set(a_words);
  bs.set(b_words);
  cs.set(c);
  MultiplyKernel<T> kernel{};
  kernel.a = reinterpret_cast<const FragmentA*>(as.data());
  kernel.b = reinterpret_cast<const FragmentB*>(bs.data());
  kernel.c = reinterpret_cast<FragmentC*>(cs.data());
  launch(*device, "multiply", kernel, 1, 64);
  EXPECT_EQ(cs.get(), want);
}

TEST(Fragment, AProductOfKnownMatricesIsLaidOutAsThePtxIsaSays) {
  expect_product<BFloat16>();
  expect_product<Float16>();
}

// Shared memory holds 32 rows of 8 elements, numbered; matrix i begins with row 8 i.
template <bool transposed>
struct LoadKernel : PerBlock {
  float* to;  // [lane][matrix][element]
  CS_BODY void operator()(Block& block) const {
    auto* shared = block.shared<BFloat16>();
    for (int e = 0; e < 8; ++e)
      shared[block.lane() * 8 + e] = BFloat16(static_cast<float>(block.lane() * 8 + e));
    block.barrier();
    const auto* row = shared + block.lane() * 8;
    const FourMatrices m =
        transposed ? load_matrices_transposed(block, row) : load_matrices(block, row);
    for (int i = 0; i < 4; ++i) {
      to[block.lane() * 8 + 2 * i] = half_of<BFloat16>(m.at[i], 0);
      to[block.lane() * 8 + 2 * i + 1] = half_of<BFloat16>(m.at[i], 1);
    }
  }
};

template <bool transposed>
void expect_loads() {
  const auto device = fake_device();
  const Numbers to(*device, 32 * 8);
  LoadKernel<transposed> kernel{};
  kernel.to = to.data();
  launch(*device, "load", kernel, 1, 32, 32 * 16);
  const auto got = to.get();
  for (int lane = 0; lane < 32; ++lane) {
    for (int e = 0; e < 8; ++e) {
      const int near = lane / 4, far = lane % 4 * 2 + e % 2;
      const int row = transposed ? far : near, column = transposed ? near : far;
      EXPECT_EQ(got[static_cast<std::size_t>(lane * 8 + e)], (e / 2 * 8 + row) * 8 + column)
          << "lane " << lane << " element " << e;
    }
  }
}

TEST(Fragment, FourMatricesAreDealtToTheLanesByRowsAndByColumns) {
  expect_loads<false>();
  expect_loads<true>();
}

TEST(Fragment, PacksTheFirstNumberBelowTheSecond) {
  EXPECT_EQ(pack<BFloat16>(1.0F, -2.0F), 0xc0003f80U);
  EXPECT_EQ(pack<Float16>(1.0F, -2.0F), 0xc0003c00U);
  EXPECT_EQ(quick_exp2(-std::numeric_limits<float>::infinity()), 0.0F);
}

// Two groups of copies, of which up to `wait` may be pending.
template <int wait, bool barrier>
struct CopyAhead : PerBlock {
  const float* from;
  float* to;
  CS_BODY void operator()(Block& block) const {
    auto* shared = block.shared<float>();
    const int t = block.thread();
    for (int group = 0; group < 2; ++group) {
      const int at = group * 4 * block.threads() + 4 * t;
      block.copy16(shared + at, from + at, t != 5);
      block.commit_copies();
    }
    block.wait_copies<wait>();
    if constexpr (barrier) block.barrier();
    const int last = 8 * block.threads() - 1;
    for (int e = 0; e < 8; ++e) to[8 * t + e] = shared[last - 8 * t - e];
  }
};

template <class Kernel>
bool copies() {
  const auto device = fake_device();
  const Numbers x(*device, 512), y(*device, 512);
  std::vector<float> values(512), want(512);
  for (std::size_t i = 0; i < 512; ++i) values[i] = static_cast<float>(i);
  x.set(values);
  for (std::size_t i = 0; i < 512; ++i) want[511 - i] = i % 256 / 4 == 5 ? 0 : values[i];
  Kernel kernel{};
  kernel.from = x.data();
  kernel.to = y.data();
  launch(*device, "copy ahead", kernel, 1, 64, 512 * sizeof(float));
  return y.get() == want;
}

TEST(AsyncCopies, ArriveOnceWaitedForAndShown) {
  EXPECT_EQ(right_of(10, copies<CopyAhead<0, true>>), 10);
}
TEST(AsyncCopies, OfAGroupThatNobodyWaitsForAreNotThere) {
  EXPECT_EQ(right_of(10, copies<CopyAhead<1, true>>), 0);
}
TEST(AsyncCopies, AreNotShownToOthersWithoutABarrier) {
  EXPECT_LT(right_of(30, copies<CopyAhead<0, false>>), 30);
}

}  // namespace
}  // namespace coshard::testing
