#include "runtime/control/control_link.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <coshard/runtime/error.h>

namespace coshard {
namespace {

namespace asio = boost::asio;

constexpr const char* kUnknownData = "its connection carries unknown data";

std::string why_of(const boost::system::error_code& error) {
  if (error == asio::error::eof || error == asio::error::connection_reset ||
      error == asio::error::broken_pipe)
    return "its connection closed";
  return str_cat("its connection failed: ", error.message());
}

void set_option(asio::ip::tcp::socket& socket, int option, int value) {
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
}

}  // namespace

void ControlLink::listen(OnMessage received, OnEnd ended) {
  received_ = std::move(received);
  ended_ = std::move(ended);
}

void ControlLink::start() {
  boost::system::error_code ignored;
  // A child process would keep the connection open after this process has died.
  ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  set_option(socket_, TCP_KEEPIDLE, 15);
  set_option(socket_, TCP_KEEPINTVL, 5);
  set_timeout(std::chrono::minutes(1));
  read();
}

// The peer's kernel must answer within this time; its process need not.
void ControlLink::set_timeout(std::chrono::milliseconds unanswered) {
  set_option(socket_, TCP_USER_TIMEOUT, static_cast<int>(unanswered.count()));
}

void ControlLink::read() {
  const auto self = shared_from_this();
  asio::async_read(socket_, asio::buffer(&header_, sizeof header_),
                   [self](const boost::system::error_code& error, std::size_t) {
                     if (error) return self->end(why_of(error));
                     if (self->header_.bytes > self->most() ||
                         self->header_.kind > static_cast<std::uint32_t>(kLastMessageKind))
                       return self->end(kUnknownData);
                     self->text_.resize(self->header_.bytes);
                     asio::async_read(self->socket_, asio::buffer(self->text_),
                                      [self](const boost::system::error_code& failed, std::size_t) {
                                        if (failed) return self->end(why_of(failed));
                                        self->heard_at = Clock::now();
                                        self->told_silent = false;
                                        try {
                                          self->deliver();
                                        } catch (const std::exception&) {
                                          return self->end(kUnknownData);
                                        }
                                        if (self->socket_.is_open()) self->read();
                                      });
                   });
}

void ControlLink::deliver() {
  const OnMessage received = received_;  // copied, since it may replace itself
  if (received)
    received(shared_from_this(), {static_cast<MessageKind>(header_.kind), header_.process,
                                  std::move(text_), header_.to, header_.tag});
}

// A stranger may announce only a short message, so it cannot make us allocate.
std::size_t ControlLink::most() const {
  if (process < 0) return kMostOfStranger;
  return static_cast<MessageKind>(header_.kind) == MessageKind::Relayed ? kMostRelayed : kMostText;
}

void ControlLink::send(const ControlMessage& message) {
  const bool relayed = message.kind == MessageKind::Relayed;
  const std::string text = message.text.substr(0, relayed ? kMostRelayed : kMostText);
  const Header header{static_cast<std::uint32_t>(text.size()), message.process,
                      static_cast<std::uint32_t>(message.kind), message.to, message.tag};
  out_.append(reinterpret_cast<const char*>(&header), sizeof header);
  out_ += text;
  if (sending_.empty()) write();
}

// All that has been sent so far, by one call.
void ControlLink::write() {
  const auto self = shared_from_this();
  sending_.swap(out_);
  asio::async_write(socket_, asio::buffer(sending_),
                    [self](const boost::system::error_code& error, std::size_t) {
                      self->sending_.clear();
                      if (error) return self->out_.clear();  // read() gets the error
                      if (!self->out_.empty()) return self->write();
                      if (self->closing_) return self->close();
                      if (self->sent_all_) self->sent_all_();
                    });
}

void ControlLink::end(const std::string& why) {
  const OnEnd ended = std::exchange(ended_, nullptr);
  close();
  if (ended) ended(shared_from_this(), why);
}

void ControlLink::close_when_sent() {
  if (has_sent_all()) return close();
  closing_ = true;
}

void ControlLink::close() {
  ended_ = nullptr;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace coshard
