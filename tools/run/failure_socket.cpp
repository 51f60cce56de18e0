#include "tools/run/failure_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include <coshard/runtime/error.h>
#include "runtime/control/proof.h"

namespace coshard::job {

FailureSocket::FailureSocket(boost::asio::io_context& io,
                             std::function<void(std::string, int)> received)
    : name_("coshard-failure-" + random_nonce()), received_(std::move(received)), socket_(io) {
  sockaddr_un own{};
  own.sun_family = AF_UNIX;  // an abstract name begins with a zero byte
  std::memcpy(own.sun_path + 1, name_.data(), name_.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
  if (fd < 0 || ::setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      ::bind(fd, reinterpret_cast<const sockaddr*>(&own), size) != 0)
    fail(ErrorKind::CommFailed,
         str_cat("run: no socket for the errors of the program: ", std::strerror(errno)));
  socket_.assign(fd);
  wait();
}

void FailureSocket::wait() {
  socket_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                     [this](const boost::system::error_code& failed) {
                       if (failed) return;
                       drain();
                       wait();
                     });
}

void FailureSocket::drain() {
  constexpr int kMost = 1024;  // more than a socket holds
  for (int i = 0; i < kMost; ++i) {
    iovec into{buffer_.data(), buffer_.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
    msghdr message{};
    message.msg_iov = &into, message.msg_iovlen = 1;
    message.msg_control = control.data(), message.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(socket_.native_handle(), &message, 0);
    if (bytes < 0) return;
    const cmsghdr* const first = CMSG_FIRSTHDR(&message);
    if (first == nullptr || first->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(first), sizeof sender);
    if (sender.uid == ::geteuid())
      received_({buffer_.data(), static_cast<std::size_t>(bytes)}, sender.pid);
  }
}

}  // namespace coshard::job
