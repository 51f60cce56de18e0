// Matmul in builds without oneDNN: packed (simd/matmul.cpp).
#include "kernels/cpu/cpu.h"
#include "kernels/epilogue.h"
#include "kernels/libraries.h"

namespace coshard::kernels {

void cpu::run(const Matmul& args) {
  check_epilogue(args);
  Matmul product = args;
  product.bias = nullptr;
  product.epilogue = Epilogue::None;
  run_packed(product);
  if (has_epilogue(args)) run_epilogue(args, [](const auto& kernel) { run(kernel); });
}

Libraries cpu_libraries() { return {{"oneDNN", "not built in: matmul by own loops"}}; }

}  // namespace coshard::kernels
