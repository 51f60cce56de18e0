#pragma once
// The process that the launcher starts for each rank: runs the rank's program, reports on it to
// `coshard run` and outlives it, so that the launcher does not end the other ranks before they have
// reported their errors. Exits when told to, with the program's exit code.
#include <string>
#include <vector>

namespace coshard::job {

// The first argument that makes `coshard` a guard; the rest are the program's words, each prefixed
// by kGuardedWord: a launcher would take a ":" for the end of its command.
constexpr const char* kGuardWord = "--guard-rank";
constexpr char kGuardedWord = '=';

// Where a guard finds `coshard run`, "10.0.0.1,10.1.0.1:4242", and the token of its job.
constexpr const char* kAddressVariable = "COSHARD_RUN_ADDRESS";
constexpr const char* kTokenVariable = "COSHARD_RUN_TOKEN";

// Few pieces of each stream are unacknowledged, so that both ends can always read: neither signals
// nor the end of a program are queued behind them. Together they fit into a connection's initial
// buffer, also while the other end is stopped: a full one would time out.
constexpr int kMostAhead = 3;
constexpr std::size_t kLongestPiece = 8192;

// Blocks until it may exit; returns the exit code.
int guard(std::vector<std::string> words);

}  // namespace coshard::job
