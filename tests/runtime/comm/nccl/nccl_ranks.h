#pragma once
// Ranks as threads, each with a device of the fake driver and an NCCL communicator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/local/thread_group.h"
#include "runtime/comm/nccl/nccl_communicator.h"
#include "runtime/device/cuda/cuda_device.h"
#include "tests/support/fake_cuda/fake_driver.h"
#include "tests/support/fake_cuda/fake_nccl.h"
#include "tests/support/fake_mpi.h"

namespace coshard::testing {

constexpr std::int64_t kNcclSecond = 1'000'000'000;

struct NcclRank {
  int rank;
  std::shared_ptr<CudaDevice> device;
  std::shared_ptr<Communicator> host;  // of the same ranks, through host memory
  std::shared_ptr<NcclCommunicator> comm;
};

struct NcclSetting {
  int ranks = 2;
  NcclOptions options = {};
  std::int64_t timeout_ns = 20 * kNcclSecond;
};

struct NcclOutcome {
  bool failed = false;
  ErrorKind kind{};
  std::string text;
};

inline NcclOutcome outcome_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {true, error.kind(), error.what()};
  }
  return {};
}

using NcclBody = std::function<void(NcclRank&)>;

inline NcclOutcome run_nccl_rank(ThreadGroup& thread_group, int rank, const NcclSetting& setting,
                                 const NcclBody& body) {
  return outcome_of([&] {
    CudaOptions cuda_options;
    cuda_options.index = rank % FakeDriver::get().device_count();
    cuda_options.poison = true;
    NcclRank mine{
        rank, std::static_pointer_cast<CudaDevice>(make_cuda_device(cuda_options)), {}, {}};
    mine.device->set_timeout(setting.timeout_ns);
    auto control = thread_group.communicator(rank);
    control->set_timeout(setting.timeout_ns);
    std::vector<int> all(static_cast<std::size_t>(setting.ranks));
    for (int r = 0; r < setting.ranks; ++r) all[static_cast<std::size_t>(r)] = r;
    mine.host = control->subgroup(all, "host");
    mine.comm = make_nccl_communicator(std::move(control), mine.device, setting.options);
    body(mine);
  });
}

// How each rank ended. With COSHARD_TEST_PROCESSES each is in a process of its own, as far as ids
// and announcements are concerned.
inline std::vector<NcclOutcome> nccl_outcomes(const NcclSetting& setting, const NcclBody& body) {
  const bool spread = std::getenv("COSHARD_TEST_PROCESSES") != nullptr && setting.ranks > 1;
  std::unique_ptr<FakeProcesses> processes;
  if (spread) processes = std::make_unique<FakeProcesses>(setting.ranks, 1, 1);
  ThreadGroup threads_alone(setting.ranks, "tp");
  std::vector<NcclOutcome> outcomes(static_cast<std::size_t>(setting.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setting.ranks; ++rank)
    threads.emplace_back([&, rank] {
      ThreadGroup& group = spread ? processes->group_of(rank) : threads_alone;
      outcomes[static_cast<std::size_t>(rank)] = run_nccl_rank(group, rank, setting, body);
      if (spread) processes->leave(rank);
    });
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

// The same, and no rank may fail.
inline void on_nccl_ranks(const NcclSetting& setting, const NcclBody& body) {
  for (const NcclOutcome& outcome : nccl_outcomes(setting, body))
    EXPECT_FALSE(outcome.failed) << outcome.text;
}

// A buffer of the device, with host values to go in and out.
struct NcclNumbers {
  NcclNumbers(NcclRank& mine, std::vector<float> values)
      : device(mine.device),
        count(values.size()),
        buffer(mine.device->make_buffer(values.size() * sizeof(float))) {
    if (count > 0) device->upload(buffer->data(), values.data(), count * sizeof(float));
  }
  std::vector<float> get() const {
    std::vector<float> values(count);
    if (count > 0) device->download(values.data(), buffer->data(), count * sizeof(float));
    return values;
  }
  std::shared_ptr<CudaDevice> device;
  std::size_t count;
  std::shared_ptr<Buffer> buffer;
};

inline Collective nccl_sum_of(const NcclNumbers& numbers, CallSite where = CallSite::current()) {
  Collective c;
  c.kind = CollectiveKind::AllReduce;
  c.extent = static_cast<std::int64_t>(numbers.count);
  c.send = c.recv = numbers.buffer->data();
  c.keep_send = c.keep_recv = numbers.buffer;
  c.where = where;
  return c;
}

}  // namespace coshard::testing
