#pragma once
// What schedules of linear layers are chosen by, measured: calibrate(). Rank's thread.
#include <chrono>
#include <string>
#include <vector>

#include <coshard/dtensor/device_mesh.h>
#include <coshard/runtime/dtype.h>

#pragma GCC visibility push(default)
namespace coshard {

struct CalibrateOptions {
  // A file that keeps what was measured; empty: one for this machine, these hosts and this mesh in
  // $XDG_CACHE_HOME/coshard or ~/.cache/coshard.
  std::string cache = {};
  std::vector<DType> dtypes = {DType::F32};  // of products
  // About how long measuring may take; on links below 1 Gbit/s it takes longer.
  std::chrono::milliseconds budget{200};
};

// The mesh with measured links and times of products, by which schedules of linear layers are
// chosen: products on a grid of shapes, while all ranks compute; latency, rate and contention along
// each dimension. The slowest rank counts, in whole ns, so that all ranks choose alike; and what a
// run has found is kept in a file, so that the next one chooses alike too. If not all ranks find
// the same in their files, all measure. A mesh that has a calibration is returned as it is.
//   Called:  by all ranks of the world together, while nothing else is in flight.
//   Moves:   two all_reduces over the world; to measure, all_gathers along each dimension, and an
//            all_reduce over the world for each and one more.
//   Fails:   Error{BadInput}: no dtype, or one that is not floating; for options.cache: a file that
//            cannot be read or written, or is not a calibration of this version (elsewhere, a file
//            that is unusable is measured anew, and one that cannot be written is left out).
Task<DeviceMesh> calibrate(DeviceMesh mesh, CalibrateOptions options,
                           CallSite site = CallSite::current());
Task<DeviceMesh> calibrate(DeviceMesh mesh, CallSite site = CallSite::current());

}  // namespace coshard
#pragma GCC visibility pop
