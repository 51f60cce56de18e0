#pragma once
// Which rank a rank's last error blames, if the error is the library's: coshard::run() writes that
// of its own rank once it fails, and then waits for the others.
#include <string_view>

namespace coshard::job {

// "error: rank 2, layers.1: no memory"
bool is_of_a_rank(std::string_view error);
// "rank 2 ended with: no memory", or a process has died.
bool is_of_another(std::string_view words);

}  // namespace coshard::job
