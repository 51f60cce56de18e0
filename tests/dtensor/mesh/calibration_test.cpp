// What is measured, as a value and as text.
#include "dtensor/mesh/calibration.h"

#include <gtest/gtest.h>

namespace coshard {
namespace {

Calibration example_calibration() {
  Calibration c;
  c.about = "tp=2 of 2 ranks, cpu";
  c.links = {{30'000, 95'000, 1'030'000, 100'000, 2'000'000, 256}, {}};
  c.rounds = {{20'000, 60'000, 520'000, 50'000, 1'000'000, 256}, {}};
  c.products.resize(2);
  c.products[1].dtype = DType::BF16;
  for (std::size_t i = 0; i < GemmTable::kPoints; ++i)
    c.products[0].ns[i] = static_cast<std::int64_t>(i + 1), c.products[1].ns[i] = 7;
  return c;
}

TEST(Calibration, IsReadAsItWasWritten) {
  const Calibration c = example_calibration();
  const std::optional<Calibration> read = Calibration::parse(c.text());
  ASSERT_TRUE(read);
  EXPECT_TRUE(*read == c);
  EXPECT_EQ(read->text(), c.text());
}

TEST(Calibration, ThatIsDamagedAnywhereIsNone) {
  const std::string text = example_calibration().text();
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = damaged[i] == '1' ? '2' : '1';
    EXPECT_FALSE(Calibration::parse(damaged)) << i;
    EXPECT_FALSE(Calibration::parse(text.substr(0, i))) << i;
  }
  EXPECT_FALSE(Calibration::parse(text + "1\n"));
  EXPECT_FALSE(Calibration::parse(""));
  EXPECT_FALSE(Calibration::parse("coshard calibration 2\nx\n99999999999999999999 1 1\n"));
}

TEST(Calibration, OfAnotherVersionIsNone) {
  std::string text = example_calibration().text();
  text[text.find('\n') - 1] = '1';
  EXPECT_FALSE(Calibration::parse(text));
}

TEST(Calibration, HasALinkForEachDimension) {
  const std::vector<Link> links = example_calibration().costs();
  ASSERT_EQ(links.size(), 2U);
  EXPECT_EQ(links[0], (Link{45, 2'000, 0.25})) << "95 us of a common message are 50 us of bytes";
  Calibration::Times quick = example_calibration().links[0];
  quick.middle_ns = 60'000;
  EXPECT_EQ(quick.link(), (Link{30, 2'000, 0.25}));
  EXPECT_EQ(links[1], Link()) << "of one rank";
}

TEST(Calibration, HasTheLinkOfARound) {
  EXPECT_EQ(example_calibration().rounds[0].link(), (Link{35, 2'000, 0.25}));
}

// As a busy machine made it: 8.4e6 GB/s.
TEST(Calibration, ASmallMessageThatWasHeldUpDoesNotMakeALinkEndless) {
  const Calibration::Times noisy{.small_ns = 3'200'000,
                                 .middle_ns = 3'200'000,
                                 .large_ns = 3'150'000,
                                 .middle_bytes = 65'536,
                                 .large_bytes = 8'388'608};
  EXPECT_LT(noisy.link().bytes_per_us, 200'000);
  EXPECT_GE(noisy.link().latency, 3'000);
}

TEST(Calibration, HasATableForEachDtype) {
  const Calibration c = example_calibration();
  ASSERT_NE(c.table(DType::BF16), nullptr);
  EXPECT_EQ(c.table(DType::BF16)->ns[3], 7);
  EXPECT_EQ(c.table(DType::F32)->ns[3], 4);
  EXPECT_EQ(c.table(DType::F64), nullptr);
}

TEST(TextHash, FitsADoubleAndIsNeverZero) {
  for (const char* text : {"", "a", "b", "ab", "ba"}) {
    const std::uint64_t hash = text_hash(text);
    EXPECT_GT(hash, 0U);
    EXPECT_EQ(static_cast<std::uint64_t>(static_cast<double>(hash)), hash);
  }
  EXPECT_NE(text_hash("ab"), text_hash("ba"));
}

}  // namespace
}  // namespace coshard
