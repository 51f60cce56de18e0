// The state that captured steps and collectives of many ranks leave behind.
#include <cmath>

#include "kernels/run.h"
#include "runtime/device/cuda/api.h"
#include "runtime/device/graph.h"
#include "tests/fake_cuda/on_fake.h"
#include "tests/runtime/comm/on_ranks.h"

namespace coshard::testing {
namespace {

using namespace coshard::testing;

kernels::View view4(void* data, DType dtype, std::array<std::int64_t, 4> shape) {
  kernels::View v;
  v.data = data;
  v.dtype = dtype;
  v.ndim = 4;
  std::int64_t stride = 1;
  for (int d = 3; d >= 0; --d) {
    v.shape[static_cast<std::size_t>(d)] = shape[static_cast<std::size_t>(d)];
    v.strides[static_cast<std::size_t>(d)] = stride;
    stride *= shape[static_cast<std::size_t>(d)];
  }
  return v;
}

void rope(CudaDevice& device, float* y, float* x, std::int64_t seq, double theta) {
  kernels::run(device, kernels::Rope{view4(y, DType::F32, {1, seq, 1, 4}),
                                     view4(x, DType::F32, {1, seq, 1, 4}), 0, theta, false});
}

constexpr std::int64_t kSeq = 4;
constexpr std::size_t kNumbers = 16;

std::vector<float> rope_of_ones() {
  const auto device = fake_device();
  const Numbers x(*device, kNumbers), y(*device, kNumbers);
  x.set(std::vector<float>(kNumbers, 1));
  rope(*device, y.data(), x.data(), kSeq, 10000);
  return y.get();
}

TEST(Hostile, ARotaryTableOfAnAbandonedRecordingIsNotUsedAfterIt) {
  const auto expected = rope_of_ones();
  const auto device = fake_device();
  const Numbers x(*device, kNumbers), y(*device, kNumbers);
  x.set(std::vector<float>(kNumbers, 1));
  {
    const auto recording = device->record_graph();
    rope(*device, y.data(), x.data(), kSeq, 10000);
  }
  rope(*device, y.data(), x.data(), kSeq, 10000);
  EXPECT_EQ(y.get(), expected);
}

TEST(Hostile, ARotaryTableThatAGraphReadsStaysWithTheGraph) {
  const auto expected = rope_of_ones();
  CudaOptions options;
  options.poison = true;
  const auto device = fake_device(options);
  const Numbers x(*device, kNumbers), y(*device, kNumbers), z(*device, kNumbers);
  x.set(std::vector<float>(kNumbers, 1));
  rope(*device, y.data(), x.data(), kSeq, 10000);  // a warm-up step
  std::unique_ptr<DeviceGraph> graph;
  {
    const auto recording = device->record_graph();
    rope(*device, y.data(), x.data(), kSeq, 10000);
    graph = recording->finish();
  }
  graph->launch();
  EXPECT_EQ(y.get(), expected);
  for (int i = 1; i <= 8; ++i) rope(*device, z.data(), x.data(), kSeq, 10000 + i);
  graph->launch();
  EXPECT_EQ(y.get(), expected);
}

void all_reduce_in_place(int ranks, std::size_t size) {
  const auto outcomes = outcomes_on_ranks(ranks, [&](Communicator& comm, int rank) {
    Floats sum(size, static_cast<float>(rank + 1));
    Collective c;
    c.kind = CollectiveKind::AllReduce;
    c.extent = static_cast<std::int64_t>(size);
    c.send = c.recv = sum.put();
    c.keep_send = c.keep_recv = sum.buffer();
    comm.issue(c).wait();
    sum.get();
    int wrong = 0;
    float seen = 0;
    for (std::int64_t i = 0; i < sum.size(); ++i)
      if (sum[i] != static_cast<float>(ranks * (ranks + 1) / 2)) ++wrong, seen = sum[i];
    EXPECT_EQ(wrong, 0) << "rank " << rank << " of " << ranks << ": " << seen << " instead of "
                        << ranks * (ranks + 1) / 2;
  });
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
}

TEST(Hostile, SixteenRanksReduceInPlace) { all_reduce_in_place(16, 20'000); }
TEST(Hostile, SeventeenRanksReduceInPlace) { all_reduce_in_place(17, 20'000); }

// All earlier work has been awaited before the recording, without host waits.
TEST(Hostile, AStepIsCapturedAfterACollectiveOfTheLocalCommunicator) {
  const auto outcomes = outcomes_on_ranks(2, [&](Communicator& comm, int rank) {
    Floats sum(8UL, static_cast<float>(rank + 1));
    comm.issue(sum_of(sum)).wait();
    auto& device = dynamic_cast<CudaDevice&>(*device_here());
    const auto recording = device.record_graph();
    add_one(device, static_cast<float*>(sum.data()), static_cast<float*>(sum.data()), 8,
            device.compute_stream());
    const auto graph = recording->finish();
    graph->launch();
    EXPECT_EQ(sum.get()[7], 4);
  });
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.text;
}

TEST(Hostile, ANanQueryOfF32GivesNan) {
  const auto device = fake_device();
  for (const std::int64_t keys : {64, 2048}) {
    const Numbers q(*device, 64), k(*device, 64UL * static_cast<std::size_t>(keys)),
        out(*device, 64), lse(*device, 1);
    q.set(std::vector<float>(64, NAN));
    k.set(std::vector<float>(k.count, 1));
    kernels::Attention a{};
    a.q = view4(q.data(), DType::F32, {1, 1, 1, 64});
    a.k = a.v = view4(k.data(), DType::F32, {1, 1, keys, 64});
    a.out = view4(out.data(), DType::F32, {1, 1, 1, 64});
    a.lse = lse.data();
    a.scale = 0.125;
    kernels::run(*device, a);
    EXPECT_TRUE(std::isnan(out.get()[0])) << out.get()[0];
    EXPECT_TRUE(std::isnan(lse.get()[0])) << lse.get()[0];
  }
}

TEST(Hostile, ANanQueryGivesNanHoweverManyKeysThereAre) {
  const auto device = fake_device();
  for (const std::int64_t keys : {64, 2048}) {
    const std::size_t dim = 64, k_bytes = static_cast<std::size_t>(keys) * dim * 2;
    const auto q = device->make_buffer(dim * 2), k = device->make_buffer(k_bytes),
               v = device->make_buffer(k_bytes), out = device->make_buffer(dim * 2),
               lse = device->make_buffer(4);
    const std::vector<std::uint16_t> nans(dim, 0x7fc0),
        ones(static_cast<std::size_t>(keys) * dim, 0x3f80);
    device->upload(q->data(), nans.data(), dim * 2);
    device->upload(k->data(), ones.data(), k_bytes);
    device->upload(v->data(), ones.data(), k_bytes);
    kernels::Attention a{};
    a.q = view4(q->data(), DType::BF16, {1, 1, 1, 64});
    a.k = view4(k->data(), DType::BF16, {1, 1, keys, 64});
    a.v = view4(v->data(), DType::BF16, {1, 1, keys, 64});
    a.out = view4(out->data(), DType::BF16, {1, 1, 1, 64});
    a.lse = lse->data();
    a.scale = 0.125;
    kernels::run(*device, a);
    std::vector<std::uint16_t> got(dim);
    float found = 0;
    device->download(got.data(), out->data(), dim * 2);
    device->download(&found, lse->data(), 4);
    EXPECT_GT(got[0] & 0x7fff, 0x7f80) << keys << " keys: " << std::hex << got[0];
    EXPECT_TRUE(std::isnan(found)) << keys << " keys: lse " << found;
  }
}

}  // namespace
}  // namespace coshard::testing
