// Every byte that is wanted belongs to one rank and one window.
#include "dtensor/checkpoint/bands.h"

#include <gtest/gtest.h>

namespace coshard::testing {
namespace {

TEST(Bands, DealEachChunkToOneRank) {
  const std::vector<std::int64_t> files{3 * kChunk + 5, 7, 0, 2 * kChunk};
  const std::vector<FileBytes> all{{0, 0, files[0]}, {1, 0, 7}, {3, 0, files[3]}};
  for (const int ranks : {1, 2, 3, 5, 9})
    for (const std::int64_t window : {std::int64_t{1}, kChunk, 3 * kChunk, 64 * kChunk}) {
      const Bands bands(files, all, ranks, window);
      std::vector<FileBytes> seen;
      for (int rank = 0; rank < ranks; ++rank) {
        std::int64_t of_rank = 0;
        for (int number = 0; number < bands.windows(); ++number) {
          std::int64_t of_window = 0;
          for (const FileBytes& part : bands.window(rank, number)) {
            EXPECT_EQ(part.begin % kChunk, 0);
            of_window += part.end - part.begin;
            if (!seen.empty() && seen.back().file == part.file && seen.back().end == part.begin)
              seen.back().end = part.end;
            else
              seen.push_back(part);
          }
          EXPECT_LE(of_window, std::max(window, kChunk));
          of_rank += of_window;
        }
        EXPECT_LE(of_rank, (7 + ranks - 1) / ranks * kChunk);
        EXPECT_TRUE(bands.window(rank, bands.windows()).empty());
      }
      EXPECT_EQ(seen, all) << ranks << " ranks, windows of " << window;
    }
}

TEST(Bands, LeaveOutChunksThatNobodyWants) {
  const std::vector<std::int64_t> files{10 * kChunk};
  const Bands bands(files,
                    {{0, kChunk + 1, kChunk + 2},
                     {0, kChunk + 9, 2 * kChunk + 1},
                     {0, 5 * kChunk, 5 * kChunk},
                     {0, 9 * kChunk, 9 * kChunk + 1}},
                    1, 64 * kChunk);
  EXPECT_EQ(bands.window(0, 0),
            (std::vector<FileBytes>{{0, kChunk, 3 * kChunk}, {0, 9 * kChunk, 10 * kChunk}}));
  EXPECT_EQ(Bands(files, {}, 2, kChunk).windows(), 0);
}

}  // namespace
}  // namespace coshard::testing
