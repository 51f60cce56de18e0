#pragma once
// Counts the times a rank waited in place for a collective that had not been awaited: because an
// operator or the host needed its data, or a writer (an in-place operator, an optimizer) needed the
// memory that it reads. The rank's other branches cannot run during such a wait. Rank's thread.
#include <map>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)
namespace coshard {

// Count by operator ("data": the host, or code that took the address), since the rank started or
// clear_waits_in_place() was called.
using WaitsInPlace = std::map<std::string, int, std::less<>>;
const WaitsInPlace& waits_in_place();
void clear_waits_in_place();

void count_wait_in_place(std::string_view who);

}  // namespace coshard
#pragma GCC visibility pop
