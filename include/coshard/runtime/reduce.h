#pragma once
// Reductions over the values of several ranks.
#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)
namespace coshard {

enum class Reduce : std::uint8_t { Sum, Avg, Min, Max, Product };
std::string_view to_string(Reduce reduce);  // "sum", ...

}  // namespace coshard
#pragma GCC visibility pop
