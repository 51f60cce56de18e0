#pragma once
// The checkpoints of one training, folder/step-N, which one process at a time writes. Any thread.
#include <cstdint>
#include <string>
#include <vector>

namespace coshard {

class StepFolders {
 public:
  // Makes the folder, takes its lock (folder/.lock) and removes what saves that died have left.
  // Error{BadInput}: it cannot be made or written, or is no folder; it is a checkpoint itself, or has
  // a name such as step-007, or a step that is no folder; another process has the lock, by its
  // number and host.
  explicit StepFolders(std::string folder);
  ~StepFolders();
  StepFolders(const StepFolders&) = delete;
  StepFolders& operator=(const StepFolders&) = delete;

  static std::string path(const std::string& folder, std::int64_t step);
  // In ascending order.
  static std::vector<std::int64_t> steps_in(const std::string& folder);
  // Removes all but the newest `count`; warns of what cannot be removed, which the next call tries
  // again.
  void keep_newest(int count) const;

  // Error{BadInput}: the folder is not the one that was taken any more.
  void require_held() const;
  // What its holder has written into the lock: another process that sees it has the same folder.
  const std::string& mark() const { return mark_; }
  // Whether the folder has that mark, now or within a minute.
  static bool sees_mark(const std::string& folder, const std::string& mark);

 private:
  std::string folder_, mark_;
  int lock_;
};

}  // namespace coshard
