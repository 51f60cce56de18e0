#pragma once
// What is wrong with the run of a seed; "" when nothing is.
#include <cstdint>
#include <string>

namespace coshard::testing {

struct Report;

// The program of that seed: each result is what it means, the order in which ranks issue and resume
// is the same on all, and the time is what its sleeps take.
std::string judge_one_structure(std::uint64_t seed);
// The same program, which differs on one rank, in a way that is drawn too: all ranks end with a
// typed error that names ranks, no result was wrong, and nobody hangs.
std::string judge_difference(std::uint64_t seed, int processes = 1);

// How the runs ended, for who wants to know that both happen.
struct Tally {
  int right = 0, failed = 0;
};
// The program of that seed with four ranks does the same in one process as over two and four, with
// delays.
std::string judge_spread(std::uint64_t seed);
// With lost messages it ends with right results, or at a deadline with what is missing.
std::string judge_lossy(std::uint64_t seed, Tally& tally);
// With a process that is killed it ends with right results, or all that live name that process.
std::string judge_killed(std::uint64_t seed, Tally& tally);

std::string judge_success(const Report& report);
std::string wrong_in(const Report& report);  // the first result that is wrong

}  // namespace coshard::testing
