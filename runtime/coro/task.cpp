#include <coshard/runtime/coro/task.h>

namespace coshard {

void fail_empty_task() {
  fail(ErrorKind::BadInput, "Task: awaited twice, or after it was moved from");
}

}  // namespace coshard
