#pragma once
// Turns the tape on inside of what runs without it: recomputation records again while backward
// walks. Rank's thread.

namespace coshard {

// Records are made on this thread while one lives, also under a NoGradGuard (tape.h). Do not hold
// one across a co_await that may run siblings.
class RecordGuard {
 public:
  RecordGuard();
  ~RecordGuard();
  RecordGuard(const RecordGuard&) = delete;
  RecordGuard& operator=(const RecordGuard&) = delete;

 private:
  bool before_;
};

}  // namespace coshard
