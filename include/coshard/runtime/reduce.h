#pragma once
// How the values of several ranks become one.
#include <cstdint>
#include <string_view>

namespace coshard {

enum class Reduce : std::uint8_t { Sum, Avg, Min, Max, Product };
std::string_view to_string(Reduce reduce);  // "sum", ...

}  // namespace coshard
