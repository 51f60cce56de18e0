#pragma once
// Elements of stored tensors as numbers. Pure.
#include <cstddef>
#include <cstdint>

#include "dtensor/checkpoint/safetensors.h"

namespace coshard {

// Whether stored_value knows the type: all but F4, F6, F8 and C64.
bool has_values(StoredType type);
// Element `at` of row-major data, exactly where long double holds 64 bits (x86, Arm); of BOOL 1 for
// every byte but 0.
long double stored_value(StoredType type, const std::byte* data, std::int64_t at);

}  // namespace coshard
