#include <coshard/runtime/coro/task.h>

#include <cstdio>

namespace coshard {

void fail_empty_task() {
  fail(ErrorKind::BadInput, "Task: awaited twice, or after it was moved from");
}

void destroy_with_room(std::coroutine_handle<> frame) noexcept {
  if (!StackRoom::on_another([frame] { frame.destroy(); }))
    std::fputs("warning: tasks were not destroyed: there is no memory for a stack\n", stderr);
}

std::coroutine_handle<> resume_with_room(std::coroutine_handle<> coroutine) noexcept {
  if (!StackRoom::on_another([coroutine] { coroutine.resume(); })) return coroutine;
  return std::noop_coroutine();
}

}  // namespace coshard
