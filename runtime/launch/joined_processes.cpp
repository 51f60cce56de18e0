#include "runtime/launch/joined_processes.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

struct Name {
  sockaddr_un address{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Name name_of(int launcher, int process) {
  const std::string text = str_cat("coshard ", launcher, ' ', process);
  Name name;
  name.address.sun_family = AF_UNIX;
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());  // a leading 0: no file
  name.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

int new_socket() { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

bool is_launcher(std::string_view command) {
  for (const std::string_view known :
       {"mpirun", "mpiexec", "orterun", "orted", "prte", "hydra_pmi_proxy", "slurmstepd"})
    if (command.starts_with(known)) return true;
  return false;
}

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += str_cat(text.empty() ? "" : ", ", number);
  return text;
}

}  // namespace

int launcher_above(int pid) {
  while (pid > 1) {
    std::ifstream file(str_cat("/proc/", pid, "/stat"));
    std::ostringstream all;
    all << file.rdbuf();
    const std::string stat = all.str();  // "71 (name) S 70 ...", where the name may be anything
    const std::size_t begin = stat.find('('), end = stat.rfind(')');
    if (begin == std::string::npos || end == std::string::npos || end + 4 > stat.size()) return 0;
    if (is_launcher(std::string_view(stat).substr(begin + 1, end - begin - 1))) return pid;
    pid = std::atoi(stat.c_str() + end + 4);
  }
  return 0;
}

JoinedProcesses::JoinedProcesses(int launcher, int process)
    : launcher_(launcher), socket_(new_socket()) {
  const Name own = name_of(launcher, process);
  (void)::bind(socket_, own.get(), own.size);
}

JoinedProcesses::~JoinedProcesses() {
  if (socket_ >= 0) ::close(socket_);
}

std::vector<int> JoinedProcesses::here(int processes) const {
  std::vector<int> found;
  for (int process = 0; process < processes; ++process) {
    const int asks = new_socket();
    const Name name = name_of(launcher_, process);
    if (::connect(asks, name.get(), name.size) == 0) found.push_back(process);
    ::close(asks);
  }
  return found;
}

std::string absence_text(int processes, int local, const std::vector<int>& here) {
  const int came = static_cast<int>(here.size());
  if (came == 0 || local == 0)
    return str_cat("not all of the ", processes, " processes have called run()");
  if (came >= local)
    return str_cat(local == processes ? "all processes" : "all processes of this host",
                   " have called run()", local == processes ? "" : ", but not all of the others");
  if (local < processes)
    return str_cat("of the ", local, " processes on this host only ", list(here),
                   came == 1 ? " has" : " have", " called run()");
  std::vector<int> absent;
  for (int process = 0; process < processes; ++process)
    if (std::ranges::find(here, process) == here.end()) absent.push_back(process);
  const bool one = absent.size() == 1;
  return str_cat(one ? "process " : "processes ", list(absent), one ? " has" : " have",
                 " not called run()");
}

}  // namespace coshard
