#pragma once
// The operators, as functions on Tensors and DTensors alike. Each is differentiable unless it says
// otherwise, keeps the dtype of its first floating input, and issues collectives only where the
// layouts leave it no strategy without (see op.h). Shapes are those of PyTorch's functions of the
// same name. The last argument, `site`, is the line of the call: it is what errors of a collective
// name that an operator issues (coro/user_call.h). Errors: Error{BadInput} "<op>: …" naming shapes
// and layouts.
#include <coshard/dtensor/ops/ops_index.h>
#include <coshard/dtensor/ops/ops_matmul.h>
#include <coshard/dtensor/ops/ops_nn.h>
#include <coshard/dtensor/ops/ops_operators.h>
#include <coshard/dtensor/ops/ops_pointwise.h>
#include <coshard/dtensor/ops/ops_reduce.h>
#include <coshard/dtensor/ops/ops_view.h>
