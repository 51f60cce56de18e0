// Kernels that have no CUDA body yet.
#include "kernels/cuda/typed.h"

namespace coshard::kernels::cuda {

#define MISSING(Kernel) \
  void run(CudaDevice&, const Kernel&) { fail(ErrorKind::Unsupported, #Kernel " on cuda"); }
MISSING(ReduceDim)
MISSING(ReduceGrad)
MISSING(ArgReduce)
MISSING(Scan)
MISSING(ScanGrad)
MISSING(Sort)
MISSING(Softmax)
MISSING(SoftmaxGrad)
MISSING(LayerNorm)
MISSING(LayerNormGrad)
MISSING(RmsNorm)
MISSING(RmsNormGrad)
MISSING(Embedding)
MISSING(EmbeddingGrad)
MISSING(RowMax)
MISSING(CrossEntropyStats)
MISSING(CrossEntropyGrad)
MISSING(CrossEntropyLoss)
MISSING(NllLoss)
MISSING(NllLossGrad)

}  // namespace coshard::kernels::cuda
