#pragma once
// The reductions that kernels are tried with.
#include <coshard/runtime/error.h>
#include "tests/kernels/cuda/compared.h"

namespace coshard::kernels::testing {

// An op and its alphas.
struct Reduction {
  ReduceOp op;
  double alpha = 0;
  std::string text() const { return "reduction " + std::to_string(static_cast<int>(op)); }
};

inline const std::vector<Reduction> kReductions = {
    {ReduceOp::Sum},         {ReduceOp::Mean},        {ReduceOp::Max},
    {ReduceOp::Min},         {ReduceOp::Product},     {ReduceOp::NanSum},
    {ReduceOp::AbsMax},      {ReduceOp::AbsMin},      {ReduceOp::AbsPower, 0},
    {ReduceOp::AbsPower, 1}, {ReduceOp::AbsPower, 2}, {ReduceOp::AbsPower, 2.5},
    {ReduceOp::Variance, 1}, {ReduceOp::Deviation},   {ReduceOp::LogSumExp}};

}  // namespace coshard::kernels::testing
