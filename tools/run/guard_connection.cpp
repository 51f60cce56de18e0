#include "tools/run/guard_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/host_name.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <sstream>

#include <coshard/runtime/error.h>
#include "tools/run/message.h"

namespace coshard::job {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::ip::tcp::socket;

constexpr std::chrono::seconds kPatience{2};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  CS_REQUIRE(value != nullptr, name, " is not set: only `coshard run` starts this command");
  return value;
}

std::string own_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* value = std::getenv(name)) return value;
  fail(ErrorKind::CommFailed, "the launcher does not say which rank this process is");
}

// Whether the socket was answered in time.
bool introduce(asio::io_context& io, Socket& socket, const asio::ip::tcp::endpoint& to,
               const std::string& hello) {
  bool welcome = false;
  unsigned char answer = 0;
  const auto answered = [&](error_code failed, std::size_t) {
    welcome = !failed && answer == kWelcome;
  };
  socket.async_connect(to, [&](error_code failed) {
    if (failed) return;
    const MessageHeader header = header_of(MessageKind::Hello, hello.size());
    asio::write(socket, std::array{asio::buffer(header), asio::buffer(hello)}, failed);
    asio::async_read(socket, asio::buffer(&answer, 1), answered);
  });
  io.restart();
  io.run_for(kPatience);
  if (!io.stopped()) {
    socket.close();
    io.run();
  }
  io.restart();
  return welcome;
}

}  // namespace

Socket connect_to_run(asio::io_context& io) {
  const std::string addresses = variable(kAddressVariable);
  const std::string hello = variable(kTokenVariable) + ' ' + own_rank();
  std::istringstream in(addresses);
  for (std::string word; std::getline(in, word, ',');) {
    const std::size_t colon = word.rfind(':');
    const auto port = static_cast<unsigned short>(std::atoi(word.c_str() + colon + 1));
    Socket socket(io);
    if (!introduce(io, socket, {asio::ip::make_address(word.substr(0, colon)), port}, hello))
      continue;
    ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);  // not the program's
    return socket;
  }
  fail(ErrorKind::CommFailed, str_cat("rank ", own_rank(), " on ", asio::ip::host_name(),
                                      " cannot reach `coshard run` at ", addresses));
}

std::vector<std::string> own_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) first = nullptr;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const auto* address = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    addresses.push_back(asio::ip::address_v4(ntohl(address->sin_addr.s_addr)).to_string());
  }
  if (addresses.empty()) addresses.emplace_back("127.0.0.1");
  return addresses;
}

}  // namespace coshard::job
