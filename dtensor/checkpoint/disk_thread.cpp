#include "dtensor/checkpoint/disk_thread.h"

#include <utility>

#include "runtime/start_thread.h"

namespace coshard {

DiskThread::~DiskThread() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DiskThread::run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread([this] { work(); });
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void DiskThread::wait(std::size_t left) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.size() <= left; });
}

bool DiskThread::is_idle() const {
  const std::lock_guard lock(mutex_);
  return tasks_.empty();
}

std::exception_ptr DiskThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void DiskThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (ends_) return;
    if (!failure_) {
      std::function<void()> task = std::move(tasks_.front());
      lock.unlock();
      std::exception_ptr failed;
      try {
        task();
      } catch (...) {
        failed = std::current_exception();
      }
      task = nullptr;  // with what it holds
      lock.lock();
      failure_ = failed;
    }
    tasks_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace coshard
