#pragma once
// What is wrong with the run of a seed; "" when nothing is.
#include <cstdint>
#include <string>

namespace coshard::test {

// The program of that seed: each result is what it means, the order in which ranks issue and resume
// is the same on all, and the time is what its sleeps take.
std::string judge_one_structure(std::uint64_t seed);
// The same program, which differs on one rank, in a way that is drawn too: all ranks end with a
// typed error that names ranks, no result was wrong, and nobody hangs.
std::string judge_difference(std::uint64_t seed);

}  // namespace coshard::test
