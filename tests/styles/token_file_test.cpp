// Token files and their batches. tests/hf/lora_test.py reads and writes them with NumPy.
#include <coshard/styles/token_file.h>

#include <fstream>
#include <set>

#include "tests/dtensor/checkpoint/saved_states.h"
#include "tests/styles/support.h"

namespace coshard::testing {
namespace {

std::vector<std::int64_t> counted_ids(std::int64_t count, std::int64_t first = 0) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(first + i);
  return ids;
}

TEST(TokenFile, ReadsBothWidthsThatItWrites) {
  const ScratchFolder scratch;
  for (const std::int64_t first : {0, 70000}) {
    TokenFile(counted_ids(100, first), "made").save(scratch.path("a.npy"));
    const TokenFile read(scratch.path("a.npy"));
    ASSERT_EQ(read.size(), 100);
    for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(read[i], first + i);
    const std::size_t bytes = bytes_of(scratch.path("a.npy")).size();
    EXPECT_EQ(bytes % 64, first == 0 ? 200U % 64 : 400U % 64);
  }
}

TEST(TokenFile, RefusesWhatIsNoArrayOfIds) {
  const ScratchFolder scratch;
  TokenFile(counted_ids(10), "made").save(scratch.path("a.npy"));
  const std::string good = bytes_of(scratch.path("a.npy"));
  const auto told = [&](const std::string& bytes) {
    std::ofstream(scratch.path("b.npy"), std::ios::binary) << bytes;
    return error_of([&] { TokenFile file(scratch.path("b.npy")); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_CONTAINS(told(""), "is empty");
  EXPECT_CONTAINS(told("text"), "is no array");
  EXPECT_CONTAINS(told(with("<u2", "<i2")), "is no array");
  EXPECT_CONTAINS(told(with("(10,)", "(5,2)")), "is no array");
  EXPECT_CONTAINS(told(with("False", "True ")), "is no array");
  EXPECT_CONTAINS(told(with("(10,), } ", "(0,), }  ")), "has no token ids");
  EXPECT_CONTAINS(told(with("(10,)", "(99,)")), "not 99 ids");
  EXPECT_CONTAINS(told(good.substr(0, good.size() - 1)), "19 bytes of ids");
  EXPECT_CONTAINS(told(good + "x"), "21 bytes of ids");
  for (std::size_t size = 1; size < good.size(); ++size)
    EXPECT_NE(told(good.substr(0, size)), "nothing was thrown") << size;
  EXPECT_CONTAINS(error_of([&] { TokenFile file(scratch.path("none")); }), "cannot be opened");
  EXPECT_CONTAINS(error_of([&] { TokenFile file({}, "text"); }), "no token ids");
  EXPECT_CONTAINS(error_of([&] { TokenFile file({1, -1}, "text"); }), "token id -1 at 1");
}

TEST(TokenBatches, AnEpochHasEachWindowOnce) {
  for (const std::int64_t windows : {1, 2, 3, 4, 5, 17, 100}) {
    const TokenBatches batches(TokenFile(counted_ids(windows * 8 + 4), "made"), {.seq = 8});
    ASSERT_EQ(batches.windows(), windows);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> begins;
      for (std::int64_t i = 0; i < windows; ++i)
        begins.insert(batches.window_begin(epoch * windows + i));
      EXPECT_EQ(static_cast<std::int64_t>(begins.size()), windows);
      const std::int64_t offset = *begins.begin();
      EXPECT_LE(offset, 3);
      EXPECT_EQ(*begins.rbegin(), offset + 8 * (windows - 1));
    }
  }
}

TEST(TokenBatches, OrdersDifferByEpochAndSeed) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    const TokenBatches batches(TokenFile(counted_ids(401), "made"), {.seq = 4, .seed = seed});
    std::vector<std::int64_t> begins;
    for (std::int64_t i = 0; i < 100; ++i) begins.push_back(batches.window_begin(epoch * 100 + i));
    return begins;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
}

TEST(TokenBatches, ReplicasShareTheBatchAndTheirSlicesRead) {
  on_ranks(4, [](World& world) -> Task<void> {
    const TokenBatches batches(TokenFile(counted_ids(200), "made"), {.batch = 6, .seq = 5});
    const DeviceMesh mesh = init_device_mesh(world, {2, 2}, {"dp", "tp"});
    const Tensor whole = batches.batch(7), own = batches.batch(7, mesh["dp"]);
    EXPECT_EQ(whole.shape(), (Shape{6, 6}));
    const std::int64_t first = 3 * (world.rank() / 2);
    expect_close(own, slice(whole, 0, first, first + 3), 0);
    const std::vector<double> ids = whole.to_vector();
    for (std::size_t i = 0; i < 36; ++i)
      if (i % 6 > 0) {
        EXPECT_EQ(ids[i], ids[i - 1] + 1);
      }
    const auto all = line(world);
    EXPECT_CONTAINS(error_of([&] { batches.batch(0, all); }), "even parts for 4");
    EXPECT_CONTAINS(error_of([&] { batches.batch(-1); }), "step -1");
    co_return;
  });
}

TEST(TokenBatches, RefusesWhatHoldsNoWindowOfTheVocabulary) {
  const TokenFile file(counted_ids(10), "text");
  const auto told = [&](TokenBatchesOptions options) {
    return error_of([&] { TokenBatches batches(file, options); });
  };
  EXPECT_CONTAINS(told({.seq = 10}), "its 10 token ids hold no window");
  EXPECT_CONTAINS(told({.seq = 10}), "a longer text, or a smaller seq");
  EXPECT_CONTAINS(told({.seq = 9, .vocab = 9}), "token id 9 at 9");
  EXPECT_CONTAINS(told({.batch = 0}), "batch 0");
  EXPECT_EQ(told({.seq = 9, .vocab = 10}), "nothing was thrown");
}

}  // namespace
}  // namespace coshard::testing
