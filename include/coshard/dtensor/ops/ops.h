#pragma once
// The operators, as functions on Tensors and DTensors alike. Unless it says otherwise, an operator
// is differentiable, keeps the dtype of its first floating-point input, and issues collectives only
// where the layouts allow no strategy without them (op.h). Shapes follow PyTorch's functions of the
// same name. Errors: Error{BadInput} "<op>: …", which names shapes and layouts. The last argument,
// `site`, is the line of the call, which errors of the operator's collectives name
// (coro/user_call.h).
#include <coshard/dtensor/ops/ops_index.h>
#include <coshard/dtensor/ops/ops_matmul.h>
#include <coshard/dtensor/ops/ops_nn.h>
#include <coshard/dtensor/ops/ops_operators.h>
#include <coshard/dtensor/ops/ops_pointwise.h>
#include <coshard/dtensor/ops/ops_reduce.h>
#include <coshard/dtensor/ops/ops_view.h>
