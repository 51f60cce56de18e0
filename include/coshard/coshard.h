#pragma once
// The header for every program: worlds and ranks, tensors and meshes, operators, optimizers,
// modules and styles. Separate headers: coshard/debug.h (counters, tables, traces), coshard/op.h
// (user-defined operators), coshard/device.h (user-provided streams, memory and observers),
// coshard/asio.h and coshard/simulate.h.
#include <coshard/runtime/language.h>

#include <coshard/dtensor/calibrate.h>
#include <coshard/dtensor/capture.h>
#include <coshard/dtensor/device_mesh.h>
#include <coshard/dtensor/distribute.h>
#include <coshard/dtensor/factories.h>
#include <coshard/dtensor/finite_guard.h>
#include <coshard/dtensor/hooks.h>
#include <coshard/dtensor/init.h>
#include <coshard/dtensor/local_map.h>
#include <coshard/dtensor/ops/explicit_redistribution.h>
#include <coshard/dtensor/ops/ops.h>
#include <coshard/dtensor/optim/data_parallel.h>
#include <coshard/dtensor/optim/optimizer.h>
#include <coshard/dtensor/random.h>
#include <coshard/dtensor/redistribute/redistribute.h>
#include <coshard/dtensor/redistribute/transfer.h>
#include <coshard/dtensor/redistribute/transfer_to.h>
#include <coshard/dtensor/replica_guard.h>
#include <coshard/dtensor/tape.h>
#include <coshard/dtensor/tensor.h>
#include <coshard/dtensor/waits_in_place.h>
#include <coshard/runtime/coro/deadline.h>
#include <coshard/runtime/coro/in_order.h>
#include <coshard/runtime/coro/wait_limit.h>
#include <coshard/runtime/coro/when_all.h>
#include <coshard/runtime/launch/command_line.h>
#include <coshard/runtime/launch/world.h>
#include <coshard/runtime/trace_range.h>
#include <coshard/styles/distribute_module.h>
#include <coshard/styles/fully_shard.h>
#include <coshard/styles/loss_parallel.h>
#include <coshard/styles/nn/activation.h>
#include <coshard/styles/nn/attention.h>
#include <coshard/styles/nn/embedding.h>
#include <coshard/styles/nn/linear.h>
#include <coshard/styles/nn/llama.h>
#include <coshard/styles/nn/mlp.h>
#include <coshard/styles/nn/norm.h>
#include <coshard/styles/nn/sequential.h>
#include <coshard/styles/nn/transformer.h>
#include <coshard/styles/parallelize.h>
#include <coshard/styles/recompute.h>
#include <coshard/styles/verify_replicated.h>
#include <coshard/styles/woven.h>
#include <coshard/version.h>
