#pragma once
// Tools for looking into a program: collectives counted per module, tables and traces of
// communication, redistribute plans, and which rank holds what.
#include "dtensor/redistribute/explain.h"
#include "profiling/chrome_trace.h"
#include "profiling/collective_counter.h"
#include "profiling/comm_debug.h"
#include "profiling/exit_table.h"
#include "profiling/visualize_sharding.h"
