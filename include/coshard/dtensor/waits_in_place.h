#pragma once
// Where a rank waited in place for a collective that nobody had awaited: an operator or the host
// needed its data, or a writer (in place, an optimizer) the memory that it reads. Each is time in
// which the rank's other branches could not run. Rank's thread.
#include <map>
#include <string>
#include <string_view>

namespace coshard {

// How often, by operator ("data": the host, or whoever took the address); since
// the rank began, or clear_waits_in_place() was called.
using WaitsInPlace = std::map<std::string, int, std::less<>>;
const WaitsInPlace& waits_in_place();
void clear_waits_in_place();

void count_wait_in_place(std::string_view who);

}  // namespace coshard
