// The block emulator detects missing barriers, barriers that not all threads reach, and
// synchronization in kernels that declare none.
#include "tests/support/fake_cuda/emulator.h"

#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

constexpr int kSeeds = 30;

// to[i] = from[count - 1 - i] through shared memory.
template <bool barrier>
struct Reverse : PerBlock {
  const float* from;
  float* to;
  CS_BODY void operator()(Block& block) const {
    auto* shared = block.shared<float>();
    shared[block.thread()] = from[block.thread()];
    if constexpr (barrier) block.barrier();
    to[block.thread()] = shared[block.threads() - 1 - block.thread()];
  }
};

template <class Kernel>
bool reverses() {
  const auto device = fake_device();
  const Numbers x(*device, 64), y(*device, 64);
  std::vector<float> values(64), want(64);
  for (std::size_t i = 0; i < 64; ++i) values[i] = want[63 - i] = static_cast<float>(i);
  x.set(values);
  Kernel kernel{};
  kernel.from = x.data();
  kernel.to = y.data();
  launch(*device, "reverse", kernel, 1, 64, 64 * sizeof(float));
  return y.get() == want;
}

TEST(Emulator, ABarrierOrdersSharedMemoryInEveryOrder) {
  EXPECT_EQ(right_of(kSeeds, reverses<Reverse<true>>), kSeeds);
}

TEST(Emulator, AMissingBarrierIsAWrongNumberInSomeOrder) {
  EXPECT_LT(right_of(kSeeds, reverses<Reverse<false>>), kSeeds);
}

struct SumOfWarp : PerBlock {
  float* to;
  CS_BODY void operator()(Block& block) const {
    auto value = static_cast<float>(block.thread());
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value += block.shuffle_xor(value, mask);
    const float first = block.shuffle(value, 0);
    const float before = block.shuffle_up(static_cast<float>(block.lane()), 1);
    to[block.thread()] = first + before;
  }
};

TEST(Emulator, ShufflesExchangeWithinAWarp) {
  const auto device = fake_device();
  const Numbers y(*device, 64);
  SumOfWarp kernel{};
  kernel.to = y.data();
  launch(*device, "sum of warp", kernel, 1, 64);
  const std::vector<float> got = y.get();
  EXPECT_EQ(got[0], 496);           // 0 + … + 31, and lane 0 keeps its own
  EXPECT_EQ(got[5], 496 + 4);       // lane 4's
  EXPECT_EQ(got[63], 1520 + 30.0);  // 32 + … + 63
}

struct Uneven : PerBlock {
  int reach;
  CS_BODY void operator()(Block& block) const {
    if (block.thread() < reach) block.barrier();
  }
};

struct Alone : PerElement {
  CS_BODY void operator()(Block& block) const { block.barrier(); }
};

template <class Kernel>
std::string emulation_error(const Kernel& kernel) {
  CudaLaunch call;
  call.function = function_of<Kernel>();
  call.kernel = &kernel;
  call.blocks = 1;
  call.threads = 64;
  call.uses_barriers = Kernel::kUsesBarriers;
  try {
    emulate(call, 1);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Emulator, ABarrierThatNotAllThreadsReachIsAnError) {
  Uneven kernel{};
  kernel.reach = 64;
  EXPECT_EQ(emulation_error(kernel), "");
  kernel.reach = 10;
  EXPECT_EQ(emulation_error(kernel),
            "54 of 64 threads have ended while the others wait for them to meet");
}

TEST(Emulator, AMeetingInAKernelOfLoneThreadsIsAnError) {
  EXPECT_EQ(emulation_error(Alone{}), "threads meet in a kernel that is PerElement");
}

}  // namespace
}  // namespace coshard::testing
