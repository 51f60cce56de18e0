#include "runtime/launch/liveness_link.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
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

}  // namespace

void LivenessLink::listen(OnFrame heard, OnEnd ended) {
  heard_ = std::move(heard);
  ended_ = std::move(ended);
}

void LivenessLink::start() {
  boost::system::error_code ignored;
  // A child process would keep the connection open after this process has died.
  ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  read();
}

// The peer's kernel must answer within this time; its process need not.
void LivenessLink::set_timeout(std::chrono::milliseconds unanswered) {
  const auto ms = static_cast<unsigned>(unanswered.count());
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

void LivenessLink::read() {
  const auto self = shared_from_this();
  asio::async_read(socket_, asio::buffer(&header_, sizeof header_),
                   [self](const boost::system::error_code& error, std::size_t) {
                     if (error) return self->end(why_of(error));
                     if (self->header_.bytes > self->most() ||
                         self->header_.kind > static_cast<std::uint32_t>(FrameKind::Message))
                       return self->end(kUnknownData);
                     self->text_.resize(self->header_.bytes);
                     asio::async_read(self->socket_, asio::buffer(self->text_),
                                      [self](const boost::system::error_code& failed, std::size_t) {
                                        if (failed) return self->end(why_of(failed));
                                        self->heard_at = Clock::now();
                                        self->told_silent = false;
                                        try {
                                          self->tell();
                                        } catch (const std::exception&) {
                                          return self->end(kUnknownData);
                                        }
                                        if (self->socket_.is_open()) self->read();
                                      });
                   });
}

void LivenessLink::tell() {
  const OnFrame heard = heard_;  // copied, since it may replace itself
  if (heard)
    heard(shared_from_this(), {static_cast<FrameKind>(header_.kind), header_.process,
                               std::move(text_), header_.to, header_.tag});
}

// A stranger may announce only a short frame, so it cannot make us allocate.
std::size_t LivenessLink::most() const {
  if (process < 0) return kMostOfStranger;
  return static_cast<FrameKind>(header_.kind) == FrameKind::Message ? kMostMessage : kMostText;
}

void LivenessLink::send(const Frame& frame) {
  const bool is_message = frame.kind == FrameKind::Message;
  const std::string text = frame.text.substr(0, is_message ? kMostMessage : kMostText);
  const Header header{static_cast<std::uint32_t>(text.size()), frame.process,
                      static_cast<std::uint32_t>(frame.kind), frame.to, frame.tag};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  out_.push_back(bytes + text);
  if (out_.size() == 1) write();
}

void LivenessLink::write() {
  const auto self = shared_from_this();
  asio::async_write(socket_, asio::buffer(out_.front()),
                    [self](const boost::system::error_code& error, std::size_t) {
                      if (error) return self->out_.clear();  // read() gets the error
                      self->out_.pop_front();
                      if (!self->out_.empty()) return self->write();
                      if (self->closing_) self->close();
                    });
}

void LivenessLink::end(const std::string& why) {
  const OnEnd ended = std::exchange(ended_, nullptr);
  close();
  if (ended) ended(shared_from_this(), why);
}

void LivenessLink::close_when_sent() {
  if (has_sent_all()) return close();
  closing_ = true;
}

void LivenessLink::close() {
  ended_ = nullptr;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace coshard
