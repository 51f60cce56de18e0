#pragma once
// What a kernel finds wrong with its input, say an index out of range. On the cpu it is thrown at
// once; on other devices it is left for the host, the first one is kept, in memory that both see,
// and thrown by the next wait of the host as Error{BadInput}.
#include <cstdint>
#include <string>

namespace coshard {

enum class FindingKind : std::uint32_t {
  None,
  EmbeddingId,   // value: the id; limit: rows of the table
  GatherIndex,   // value: the index; limit: size of the dimension
  ScatterIndex,  // likewise
  Target,        // value: the target; limit: classes
  Division,      // value: the dividend; limit: 0
};

struct Finding {
  std::uint32_t kind = 0;     // FindingKind; taken by compare-and-swap, then the rest is written
  std::uint32_t written = 0;  // 1 once value and limit are there
  std::int64_t value = 0, limit = 0;
};

// "embedding: id 9 is outside of a table of 8 rows"
std::string describe(FindingKind kind, std::int64_t value, std::int64_t limit);

}  // namespace coshard
