// Graphs of a device.
#include "runtime/device/graph.h"

#include <set>

#include "runtime/device/cuda/api.h"
#include "tests/fake_cuda/on_fake.h"

namespace coshard::testing {
namespace {

constexpr std::size_t kCount = 8;

// x -> x + 1 on the compute stream, x -> y on another, y -> y + 1 on the first: recorded, then
// launched twice.
bool forked_graph_is_right(bool joins) {
  const auto device = fake_device();
  const Numbers x(*device, kCount), y(*device, kCount), z(*device, kCount);
  x.set(std::vector<float>(kCount, 1));
  const auto other = device->make_stream(StreamKind::Communication);
  Stream& compute = device->compute_stream();
  std::unique_ptr<DeviceGraph> graph;
  {
    const auto recording = device->record_graph();
    add_one(*device, x.data(), x.data(), kCount, compute);
    other->wait(*compute.record());
    add_one(*device, x.data(), y.data(), kCount, *other);
    if (joins) compute.wait(*other->record());
    add_one(*device, y.data(), z.data(), kCount, compute);
    graph = recording->finish();
  }
  graph->launch();
  graph->launch();
  graph = nullptr;  // in flight
  return x.get() == std::vector<float>(kCount, 3) && z.get() == std::vector<float>(kCount, 5);
}

TEST(DeviceGraph, RunsInTheOrderOfItsWaitsAlone) {
  EXPECT_EQ(right_of(20, [] { return forked_graph_is_right(true); }), 20);
  EXPECT_LT(right_of(20, [] { return forked_graph_is_right(false); }), 20);
}

TEST(DeviceGraph, ComesAfterWhatOtherStreamsWereGivenBefore) {
  const auto body = [] {
    const auto device = fake_device();
    const Numbers x(*device, kCount), y(*device, kCount);
    x.set(std::vector<float>(kCount, 1));
    const auto other = device->make_stream(StreamKind::Communication);
    auto recording = device->record_graph();
    add_one(*device, x.data(), y.data(), kCount, device->compute_stream());
    const auto graph = recording->finish();
    recording = nullptr;
    other->wait(*device->compute_stream().record());
    add_one(*device, x.data(), x.data(), kCount, *other);
    graph->launch();
    return y.get() == std::vector<float>(kCount, 3);
  };
  EXPECT_EQ(right_of(20, body), 20);
}

TEST(DeviceGraph, KeepsItsMemoryToItselfAndWhatWasLetGoMeanwhile) {
  const auto device = fake_device();
  const Numbers x(*device, kCount), out(*device, kCount);
  x.set(std::vector<float>(kCount, 1));
  auto before = std::make_unique<Numbers>(*device, kCount);
  before->set(std::vector<float>(kCount, 5));
  void* const was = before->data();
  auto recording = device->record_graph();
  const std::uint64_t mallocs = FakeDriver::get().calls("Malloc");
  std::set<void*> pieces;
  for (int i = 0; i < 8; ++i) {  // freed in order: one piece is enough
    const Numbers scratch(*device, kCount);
    pieces.insert(scratch.data());
    add_one(*device, x.data(), scratch.data(), kCount, device->compute_stream());
  }
  EXPECT_EQ(pieces.size(), 1U);
  EXPECT_EQ(FakeDriver::get().calls("Malloc"), mallocs + 1);
  add_one(*device, before->data(), out.data(), kCount, device->compute_stream());
  before = nullptr;
  auto graph = recording->finish();
  recording = nullptr;
  for (int i = 0; i < 4; ++i) {
    const Numbers later(*device, kCount);
    EXPECT_NE(later.data(), was);
    EXPECT_FALSE(pieces.contains(later.data()));
  }
  graph->launch();
  EXPECT_EQ(out.get(), std::vector<float>(kCount, 6));
  graph = nullptr;
  // The next graph takes the memory of the one that is gone.
  recording = device->record_graph();
  const std::uint64_t more = FakeDriver::get().calls("Malloc");
  const auto buffer = std::make_unique<Numbers>(*device, kCount);
  EXPECT_EQ(FakeDriver::get().calls("Malloc"), more);
}

TEST(DeviceGraph, RefusesWhatTheHostWouldWaitForAndIsGivenUpWhole) {
  const auto device = fake_device();
  const Numbers x(*device, kCount), y(*device, kCount);
  x.set(std::vector<float>(kCount, 1));
  {
    const auto recording = device->record_graph();
    add_one(*device, x.data(), x.data(), kCount, device->compute_stream());
    for (const auto& call : std::vector<std::function<void()>>{
             [&] { x.get(); }, [&] { y.set({1}); }, [&] { device->synchronize(); },
             [&] { device->compute_stream().record()->synchronize(0); },
             [&] { device->make_stream(StreamKind::Communication); }}) {
      const std::string text = error_text(ErrorKind::Unsupported, call);
      EXPECT_NE(text.find("within a captured step on cuda:0"), std::string::npos) << text;
    }
    EXPECT_NE(error_text(ErrorKind::BadInput, [&] { device->record_graph(); }), "");
  }
  EXPECT_EQ(x.get(), std::vector<float>(kCount, 1));  // and the stream works again
}

}  // namespace
}  // namespace coshard::testing
