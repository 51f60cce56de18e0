#pragma once
// The arguments of each numeric kernel: plain pointers, shapes and strides; no tensors, no layouts.
// `kernels::run(device, args)` picks the back end (kernels/run.h). Strides count elements. Unless a
// field is a View, memory is contiguous and row-major. Unless limited otherwise, every
// floating-point dtype works; accumulation is in f32 for bf16, f16 and f32, in f64 for f64.
#include "kernels/args/index.h"
#include "kernels/args/matmul.h"
#include "kernels/args/nn.h"
#include "kernels/args/optimizer.h"
#include "kernels/args/pointwise.h"
#include "kernels/args/random.h"
#include "kernels/args/reduce.h"
#include "kernels/args/view.h"

// Every kernel, by the name of its struct. A back end defines `run` for each.
// clang-format off
#define COSHARD_KERNELS(X) \
  /* pointwise */ X(Copy) X(Fill) X(Unary) X(UnaryGrad) X(Binary) X(Where) X(SwiGlu) X(SwiGluGrad) \
  /* index     */ X(Gather) X(Scatter) X(Triangle) X(CheckIndex) \
  /* matmul    */ X(Matmul) \
  /* reduce    */ X(ReduceDim) X(ReduceGrad) X(ArgReduce) X(Scan) X(ScanGrad) X(Sort) X(PowSum) \
  /* nn        */ X(Softmax) X(SoftmaxGrad) X(LayerNorm) X(LayerNormGrad) X(RmsNorm) X(RmsNormGrad) \
                  X(Embedding) X(EmbeddingGrad) X(Rope) X(Attention) X(AttentionGrad) \
                  X(CrossEntropyJoin) X(CrossEntropyStats) X(CrossEntropyGrad) X(CrossEntropyLoss) \
                  X(NllLoss) X(NllLossGrad) \
  /* random    */ X(Random) X(Dropout) \
  /* optimizer */ X(AdamW) X(Sgd)
// clang-format on
