#pragma once
// Turns the tape on inside of what runs without it: recomputation records again while backward
// walks. Rank's thread.

namespace coshard {

// Records are made in this branch of the program while one lives, also under a NoGradGuard
// (tape.h).
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
