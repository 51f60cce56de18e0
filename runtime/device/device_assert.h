#pragma once
// A device-side assertion: an error that a kernel found in its input, for example an index out of
// bounds. On the CPU it is thrown at once; other devices keep the first one in memory shared with
// the host, whose next wait throws it as Error{BadInput}.
#include <cstdint>
#include <string>

namespace coshard {

enum class DeviceAssertKind : std::uint32_t {
  None,
  EmbeddingId,   // value: the id; limit: rows of the table
  GatherIndex,   // value: the index; limit: size of the dimension
  ScatterIndex,  // likewise
  Target,        // value: the target; limit: classes
  Division,      // value: the dividend; limit: 0
};

struct DeviceAssert {
  std::uint32_t kind = 0;     // DeviceAssertKind; set by compare-and-swap before the rest
  std::uint32_t written = 0;  // 1 once value and limit are written
  std::int64_t value = 0, limit = 0;
};

// "embedding: id 9 is out of bounds for a table of 8 rows"
std::string describe(DeviceAssertKind kind, std::int64_t value, std::int64_t limit);

}  // namespace coshard
