// Calls that the fake driver rejects, as in CUDA's documentation, and violations that it detects.
#include "runtime/device/cuda/fragment.h"
#include "runtime/device/cuda/pack.h"
#include "tests/fake_cuda/raw_driver.h"

namespace coshard::testing {
namespace {

class DriverRule : public RawDriver {
 protected:
  float* of_device(int device) {
    EXPECT_EQ(cuda().SetDevice(device), cudaSuccess);
    return make_floats();
  }
  std::string complaint() {
    const auto said = driver.take_complaints();
    return said.size() == 1 ? said[0] : std::to_string(said.size()) + " complaints";
  }
};

TEST_F(DriverRule, LaunchesAndFillsNeedTheStreamsDeviceAndCopiesDoNot) {
  float* x = make_floats();
  const cudaStream_t stream = make_stream();
  EXPECT_EQ(cuda().SetDevice(1), cudaSuccess);
  EXPECT_EQ(add_one(x, x, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cuda().MemsetAsync(x, 0, 128, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cuda().MemcpyAsync(x, x, 128, cudaMemcpyDefault, stream), cudaSuccess);
}

TEST_F(DriverRule, AnEventIsRecordedOnStreamsOfItsDeviceAndWaitedForByAny) {
  const cudaStream_t here = make_stream();
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cuda().EventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  EXPECT_EQ(cuda().SetDevice(1), cudaSuccess);
  const cudaStream_t there = make_stream();
  EXPECT_EQ(cuda().EventRecord(event, there), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cuda().EventRecord(event, here), cudaSuccess);
  EXPECT_EQ(cuda().StreamWaitEvent(there, event, 0), cudaSuccess);
  EXPECT_EQ(cuda().EventDestroy(event), cudaSuccess);
}

TEST_F(DriverRule, PeerAccessIsEnabledOnceAndOnlyWhereItIsPossible) {
  EXPECT_EQ(cuda().DeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cuda().DeviceEnablePeerAccess(7, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cuda().DeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(cuda().DeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
  driver.set_peer_access(1, 0, false);
  EXPECT_EQ(cuda().SetDevice(1), cudaSuccess);
  int possible = 1;
  EXPECT_EQ(cuda().DeviceCanAccessPeer(&possible, 1, 0), cudaSuccess);
  EXPECT_EQ(possible, 0);
  EXPECT_EQ(cuda().DeviceEnablePeerAccess(0, 0), cudaErrorInvalidDevice);
  driver.set_peer_access(1, 0, true);
}

TEST_F(DriverRule, AKernelReachesAnotherDevicesMemoryOnlyWithPeerAccess) {
  float *there = of_device(1), *here = of_device(0);
  const cudaStream_t stream = make_stream();
  EXPECT_EQ(cuda().MemcpyAsync(here, there, 128, cudaMemcpyDefault, stream), cudaSuccess);
  EXPECT_EQ(add_one(there, here, stream), cudaSuccess);
  EXPECT_EQ(complaint(), "add one on cuda:0 has memory of cuda:1 without peer access");
  EXPECT_EQ(cuda().DeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(add_one(there, here, stream), cudaSuccess);
  EXPECT_EQ(complaint(), "0 complaints");
}

struct Nothing : PerBlock {
  CS_BODY void operator()(Block&) const {}
};

TEST_F(DriverRule, SharedMemoryAbove48KibibytesNeedsItsOptIn) {
  Nothing kernel{};
  CudaLaunch call = launch_of(kernel, "nothing", make_stream());
  call.shared_bytes = 48 * 1024;
  EXPECT_EQ(cuda().Launch(call), cudaSuccess);
  call.shared_bytes = 64 * 1024;
  EXPECT_EQ(cuda().Launch(call), cudaErrorInvalidValue);
  const auto allow = [&](int bytes) {
    return cuda().FuncSetAttribute(call.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   bytes);
  };
  EXPECT_EQ(allow(228 * 1024), cudaErrorInvalidValue);
  EXPECT_EQ(allow(64 * 1024), cudaSuccess);
  EXPECT_EQ(cuda().Launch(call), cudaSuccess);
}

// Reads 16 bytes at once, by one of four instructions.
struct ReadAt : PerBlock {
  const float* from;
  int how;
  CS_BODY void operator()(Block& block) const {
    auto* shared = block.shared<float>();
    if (how == 0) shared[0] = load_pack<4>(from).at[0];
    if (how == 1) store_pack(shared + 1, Pack<float, 4>{});
    if (how == 2) load_matrices(block, shared + 1);
    if (how == 3) block.copy16(shared, from);
    block.commit_copies();
    block.wait_copies<0>();
  }
};

TEST_F(DriverRule, AMisalignedAccessNamesItsKernel) {
  const float* x = make_floats();
  for (int how = 0; how < 4; ++how) {
    ReadAt kernel{};
    kernel.from = x + 1;
    kernel.how = how;
    CudaLaunch call = launch_of(kernel, "read at", make_stream());
    call.shared_bytes = 64;
    EXPECT_EQ(cuda().Launch(call), cudaSuccess);
    EXPECT_EQ(cuda().DeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(complaint(), "read at: a misaligned access to 16 bytes") << how;
  }
}

// Copies a float to shared memory and reads it before waiting for the copy, or after something else
// has been written there.
struct ReadEarly : PerBlock {
  const float* from;
  float* to;
  CS_BODY void operator()(Block& block) const {
    auto* shared = block.shared<float>() + 4 * block.thread();
    shared[0] = 5;
    block.copy16(shared, from);
    to[block.thread()] = shared[0];
    block.commit_copies();
    block.wait_copies<0>();
  }
};

TEST_F(DriverRule, AsynchronousCopiesLandEarlyOrLate) {
  float *x = make_floats(), *y = make_floats();
  const cudaStream_t stream = make_stream();
  EXPECT_EQ(cuda().MemsetAsync(x, 0, 128, stream), cudaSuccess);
  ReadEarly kernel{};
  kernel.from = x;
  kernel.to = y;
  CudaLaunch call = launch_of(kernel, "read early", stream);
  call.shared_bytes = 512;
  EXPECT_EQ(cuda().Launch(call), cudaSuccess);
  EXPECT_EQ(cuda().DeviceSynchronize(), cudaSuccess);
  EXPECT_GT(std::count(y, y + 32, 0.0F), 0);
  EXPECT_GT(std::count(y, y + 32, 5.0F), 0);
}

}  // namespace
}  // namespace coshard::testing
