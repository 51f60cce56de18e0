#pragma once
// A save: its files are written by a thread of each rank; what needs all ranks happens where the
// program awaits it. Owned by the program; rank's thread.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <coshard/dtensor/checkpoint/save.h>
#include <coshard/dtensor/checkpoint/state.h>
#include <coshard/runtime/coro/task.h>
#include <coshard/runtime/launch/world.h>
#include "dtensor/checkpoint/aligned_bytes.h"
#include "dtensor/checkpoint/training_files.h"

namespace coshard {

struct SavingHow {
  // At most so many windows wait for the disk while others are exchanged; memory for each.
  std::size_t windows_waiting = 1;
  std::shared_ptr<BytesPool> pool = std::make_shared<BytesPool>();  // of the memory of windows
  std::function<void()> then = nullptr;  // on rank 0, once the folder has its name; in its thread
};

class SaveInProgress {
 public:
  // As save_with; resumes when all values are in memory of the save, and may change.
  static Task<std::unique_ptr<SaveInProgress>> begin(State state, std::string folder,
                                                     SaveOptions options, TrainingFiles beside,
                                                     SavingHow how);
  ~SaveInProgress();  // gives up what is not done; the folder does not get its name
  SaveInProgress(const SaveInProgress&) = delete;
  SaveInProgress& operator=(const SaveInProgress&) = delete;

  // Resumes when all is on the disk and the folder has its name. All ranks. Fails as save.
  Task<void> finish();
  // Goes on as far as it can without waiting for a disk; whether that was the end. All ranks. Fails as
  // save.
  //   Moves: a byte of each rank; no rank waits for one that is less than a call behind.
  Task<bool> poll();

 private:
  struct Inside;
  explicit SaveInProgress(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace coshard
