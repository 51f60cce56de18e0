#pragma once
// stdin, stdout and stderr of the processes of `coshard run`, and their writes to closed pipes.
namespace coshard::job {

// Opens closed ones as /dev/null: otherwise sockets and pipes would get their numbers.
void open_standard_streams();
// Makes a write to a closed pipe an error instead of a signal that ends this process. start()
// undoes it.
void ignore_sigpipe();

}  // namespace coshard::job
