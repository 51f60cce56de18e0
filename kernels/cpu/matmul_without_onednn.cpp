// Matmul in builds without oneDNN: the reference loops, correct but slow.
#include "kernels/cpu/cpu.h"
#include "kernels/epilogue.h"
#include "kernels/libraries.h"
#include "kernels/reference/reference.h"

namespace coshard::kernels {

void cpu::run(const Matmul& args) {
  check_epilogue(args);
  reference::run(args);
}

Libraries cpu_libraries() { return {{"oneDNN", "not built in: matmul on the cpu is slow"}}; }

}  // namespace coshard::kernels
