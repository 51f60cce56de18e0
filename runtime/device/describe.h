#pragma once
// What a back end finds on this machine, in human-readable form: `coshard doctor` prints it.
// Values; any thread. Creates no Device.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <coshard/runtime/device/device.h>

namespace coshard {

struct DeviceDescription {
  std::string name;             // "NVIDIA H200"
  int capability = 0;           // 90 for 9.0; 0: none
  int multiprocessors = 0;      // or threads of the host
  std::size_t memory = 0;       // total bytes
  std::size_t free_memory = 0;  // bytes
  std::vector<bool> peers;      // whether it reaches the memory of device i
  std::string place;            // "PCI 0000:3b:00.0, NUMA node 1 (CPUs 32-63), ECC on"; or empty
  int numa_node = -1;           // the node next to it; -1: not known, or the host has one
};

struct BackendDescription {
  std::string problem, hint;  // why there is no device, and the remedy; empty: there is one
  std::vector<std::pair<std::string, std::string>> facts;  // "driver": "CUDA 13.0"
  std::vector<DeviceDescription> devices;
};

// For a kind that is not in this build, `problem` says so. Never throws for missing components.
BackendDescription describe_backend(DeviceKind kind);

}  // namespace coshard
