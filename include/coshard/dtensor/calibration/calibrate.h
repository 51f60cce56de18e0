#pragma once
// calibrate(): measures the GEMM times and link costs that choose schedules of linear layers.
// Rank's thread.
#include <chrono>
#include <string>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {

struct CalibrateOptions {
  // The file that caches the measurements; empty: one for this machine, these hosts and this mesh
  // in $XDG_CACHE_HOME/coshard or ~/.cache/coshard.
  std::string cache = {};
  std::vector<DType> dtypes = {DType::F32};  // of the GEMMs to time
  // Above 0: approximate duration of the measurement; longer on links below 1 Gbit/s.
  std::chrono::milliseconds budget{200};
};

// The mesh with measured links and GEMM times, by which schedules of linear layers are chosen:
// GEMMs on a grid of shapes, timed while all ranks compute; latency, rate and contention along each
// dimension. The slowest rank's times are used, in whole ns, so that all ranks choose alike, and
// are stored in a file, so that later runs choose alike too. Unless all ranks find the same
// calibration in their files, all measure. A mesh that has a calibration is returned as is.
//   Called:  by all ranks of the world together, while nothing else is in flight.
//   Moves:   two all_reduces over the world; to measure, also all_gathers along each dimension, one
//            all_reduce over the world per dimension, and a final one.
//   Fails:   Error{BadInput}: no dtype, or one that is not floating-point; an options.cache that
//            cannot be read or written, or is not a calibration of this version (an unusable
//            default file is replaced by a new measurement; one that cannot be written is skipped).
Task<DeviceMesh> calibrate(DeviceMesh mesh, CalibrateOptions options,
                           CallSite site = CallSite::current());
Task<DeviceMesh> calibrate(DeviceMesh mesh, CallSite site = CallSite::current());

// The mesh with measured links: times messages along each dimension, takes each rank's best run and
// the slowest rank, and rounds to two digits, so that all ranks get the same figures and most runs
// agree. Called by all ranks of the world together while nothing else is in flight; ranks outside
// the mesh learn the figures too. Moves: a few dozen all_gathers per dimension, then one all_reduce
// over the world.
Task<DeviceMesh> measure_links(DeviceMesh mesh, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
