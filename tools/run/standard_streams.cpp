#include "tools/run/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace coshard::job {

void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);  // gets the lowest number
}

void ignore_sigpipe() { ::signal(SIGPIPE, SIG_IGN); }

}  // namespace coshard::job
