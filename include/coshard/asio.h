#pragma once
// Programs beside Boost.Asio: its operations inside tasks (use_task), tasks and collectives in its
// coroutines, callbacks and futures (co_spawn, async_wait), and worlds on a context of the caller's
// own (run_ranks). Heavy: include it in sources.
#include <coshard/dtensor/redistribute/async_wait.h>
#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/launch/run_on_asio.h>
