#include <coshard/styles/nn/activation.h>

#include <coshard/dtensor/ops/ops.h>

namespace coshard::nn {

Task<Tensor> GELU::run(Tensor x) { co_return gelu(x, tanh_approximation); }
Task<Tensor> SiLU::run(Tensor x) { co_return silu(x); }
Task<Tensor> ReLU::run(Tensor x) { co_return relu(x); }
Task<Tensor> Identity::run(Tensor x) { co_return x; }

Dropout::Dropout(double p) : p(p) {
  CS_REQUIRE(p >= 0 && p <= 1, "Dropout: p ", p, " is outside [0, 1]");
}

Task<Tensor> Dropout::run(Tensor x) {
  if (p == 0 || !training()) co_return x;
  co_return dropout(x, p);
}

}  // namespace coshard::nn
