#include <coshard/runtime/coro/task.h>

namespace coshard {

void fail_empty_task() {
  fail(ErrorKind::BadInput, "Task: awaited after it was moved from or awaited before");
}

}  // namespace coshard
