#pragma once
// Whether layers overlap with the collectives around them.
#include <cstdint>
#include <ostream>
#include <string_view>

#pragma GCC visibility push(default)
namespace coshard {

// Whether a layer computes while the collectives of its input and output are in flight.
enum class Overlap : std::uint8_t {
  Off,     // no: a collective, then the GEMM; in backward, gradients of weights still overlap
  Auto,    // where the cost model predicts that it is faster
  Always,  // wherever there is a schedule, for measuring
};
std::string_view to_string(Overlap overlap);
std::ostream& operator<<(std::ostream& out, Overlap overlap);
Overlap parse_overlap(std::string_view text);  // "off", "auto", "always"; Error{BadInput}

}  // namespace coshard
#pragma GCC visibility pop
