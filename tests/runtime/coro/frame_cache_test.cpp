// Frames of coroutines: kept by size, at most so many, on the thread that freed them.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include <coshard/runtime/coro/frame_cache.h>

namespace coshard {
namespace {

TEST(FrameCacheOf, AFreedFrameIsTheNextOfItsSize) {
  if (!kCacheFrames) GTEST_SKIP() << "a sanitizer sees each frame come and go";
  void* const frame = allocate_frame(200);
  free_frame(frame, 200);
  void* const other = allocate_frame(FrameCache::kStep);
  EXPECT_NE(other, frame);
  void* const again = allocate_frame(193);  // of the same class
  EXPECT_EQ(again, frame);
  free_frame(again, 193);
  free_frame(other, FrameCache::kStep);
}

TEST(FrameCacheOf, KeepsSoManyOfASizeAndNoLargeOnes) {
  if (!kCacheFrames) GTEST_SKIP() << "a sanitizer sees each frame come and go";
  std::thread([] {  // with lists of its own
    const std::size_t size = FrameCache::size_class(500);
    std::vector<void*> frames;
    for (int i = 0; i < FrameCache::kKeep + 10; ++i) frames.push_back(allocate_frame(500));
    EXPECT_EQ(frame_cache.room[size], FrameCache::kKeep);
    for (void* frame : frames) free_frame(frame, 500);
    EXPECT_EQ(frame_cache.room[size], 0);
    int kept = 0;
    for (auto* frame = frame_cache.head[size]; frame != nullptr; frame = frame->next) ++kept;
    EXPECT_EQ(kept, FrameCache::kKeep);
    void* const large = allocate_frame(FrameCache::kClasses * FrameCache::kStep + 1);
    free_frame(large, FrameCache::kClasses * FrameCache::kStep + 1);
    EXPECT_EQ(frame_cache.room[FrameCache::kClasses - 1], FrameCache::kKeep);
  })
      .join();
}

TEST(FrameCacheOf, ATakenFrameMakesRoom) {
  if (!kCacheFrames) GTEST_SKIP() << "a sanitizer sees each frame come and go";
  std::thread([] {
    const std::size_t size = FrameCache::size_class(64);
    EXPECT_EQ(size, 0U);
    EXPECT_EQ(FrameCache::size_class(65), 1U);
    free_frame(allocate_frame(64), 64);
    EXPECT_EQ(frame_cache.room[size], FrameCache::kKeep - 1);
    void* const taken = allocate_frame(64);
    EXPECT_EQ(frame_cache.room[size], FrameCache::kKeep);
    EXPECT_EQ(frame_cache.head[size], nullptr);
    free_frame(taken, 64);
  }).join();
}

}  // namespace
}  // namespace coshard
