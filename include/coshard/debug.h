#pragma once
// What a user of coshard looks at a program with: collectives counted per module, tables and traces
// of communication, plans explained, and which rank holds what.
#include <coshard/dtensor/redistribute/explain.h>
#include <coshard/profiling/chrome_trace.h>
#include <coshard/profiling/collective_counter.h>
#include <coshard/profiling/comm_debug.h>
#include <coshard/profiling/exit_table.h>
#include <coshard/profiling/visualize_sharding.h>
