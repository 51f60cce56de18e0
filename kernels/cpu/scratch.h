#pragma once
// Thread-local scratch memory, 64-byte aligned, grown on demand and kept until the thread ends.
#include <cstddef>
#include <cstdint>

#include "kernels/args/nn.h"

namespace coshard::kernels::cpu {

// At least `count` floats, uninitialised, valid until the same thread requests the same slot again.
// Slots 0..7, one for each buffer in use at the same time.
float* scratch(int slot, std::size_t count);
template <class Real>
Real* scratch_of(int slot, std::size_t count) {
  return reinterpret_cast<Real*>(scratch(slot, count * sizeof(Real) / sizeof(float)));
}

// cos then sin of the rotary angles, [rows][2][half] in float or double, for heads of 2*half
// elements, with the positions and angles of `args`. Row s is that of every batch's row s; with
// args.positions, row b * seq + s is batch b's. Cached for the calling thread's last few requests;
// valid until its next call.
template <class Real>
const Real* rotary_table(const Rope& args);

}  // namespace coshard::kernels::cpu
