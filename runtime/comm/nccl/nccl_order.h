#pragma once
// Who orders the operations of different communicators on one device: the library, by an event
// after each, or NCCL, which lets them overlap (NCCL_LAUNCH_ORDER_IMPLICIT; an operation begins
// once the one before has begun). NCCL reads the variable when it first needs it and keeps what it
// read (param.cc), so a value that the program sets itself may come too late. NCCL is left to do it
// only where it is known to. NCCL's order is as good as CUDA's launch completion events, which promise
// no more than their best effort (CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT); events are exact.
#include <string>

namespace coshard {

struct NcclOrderFacts {
  std::string at_start, now;     // the variable when the process began, and now; "": not set
  bool plugin = false;           // NCCL may read another value through a plugin of the environment
  int library = 0;               // the version of NCCL
  int driver = 0;                // the CUDA version that the driver supports
  bool without_kernels = false;  // NCCL orders kernels only, not the copy engine's collectives
};

struct NcclOrder {
  bool by_nccl = false;     // operations that run when they are issued
  bool recordings = false;  // those recorded into a graph
  std::string reason;       // "NCCL_LAUNCH_ORDER_IMPLICIT not set"
};

NcclOrder nccl_order_of(const NcclOrderFacts& facts);
// In this process. Error{Unsupported}: there is no NCCL.
NcclOrder nccl_order(bool without_kernels);
// "ordered by events (NCCL_LAUNCH_ORDER_IMPLICIT not set)".
std::string to_string(const NcclOrder& order);

// A variable's value when the process began; "": it was not set.
std::string variable_at_start(const std::string& name);

}  // namespace coshard
