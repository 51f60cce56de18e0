#pragma once
// Tools for inspecting a program: collective counts per module, tables and traces of communication,
// redistribute plans, and which rank holds what.
#include <coshard/runtime/language.h>

#include <coshard/dtensor/redistribute/explain.h>
#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/collective_counter.h>
#include <coshard/profiling/comm_debug.h>
#include <coshard/profiling/comm_summary.h>
#include <coshard/profiling/gather.h>
#include <coshard/profiling/visualize_sharding.h>
