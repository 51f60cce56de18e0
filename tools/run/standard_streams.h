#pragma once
// What a process of `coshard run` does with its stdin, stdout and stderr, and when it writes to
// what nobody reads.
namespace coshard::job {

// Those that are closed become /dev/null: else sockets and pipes would get their numbers.
void open_standard_streams();
// For a program with nothing to read.
void close_stdin();
// A write to what nobody reads is an error, not the end of this process. start() undoes it.
void ignore_sigpipe();

}  // namespace coshard::job
