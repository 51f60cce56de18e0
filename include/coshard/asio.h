#pragma once
// Interoperability with Boost.Asio: Asio operations inside tasks (use_task), tasks and collectives
// in Asio coroutines, callbacks and futures (co_spawn, async_wait), and worlds on the caller's own
// context (run_ranks). Heavy: include it in source files only.
#include <coshard/runtime/language.h>

#include <coshard/dtensor/redistribute/async_wait.h>
#include <coshard/runtime/coro/asio.h>
#include <coshard/runtime/coro/co_spawn.h>
#include <coshard/runtime/launch/run_on_asio.h>
