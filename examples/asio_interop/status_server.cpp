#include "examples/asio_interop/status_server.h"

#include <boost/asio/write.hpp>

#include <coshard/runtime/coro/asio.h>
#include "profiling/json.h"

namespace asio_interop {
namespace {

namespace asio = boost::asio;
namespace cs = coshard;
using asio::ip::tcp;

tcp::acceptor listening(asio::io_context& context, std::uint16_t port) {
  try {
    return tcp::acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), port));
  } catch (const boost::system::system_error& error) {
    cs::fail(cs::ErrorKind::BadInput, cs::cat("--port ", port, ": ", error.code().message()));
  }
}

cs::Task<void> answer(tcp::socket& socket, std::string line) {
  try {
    cs::Task<std::size_t> write = asio::async_write(socket, asio::buffer(line), cs::use_task);
    co_await std::move(write);
  } catch (const boost::system::system_error&) {  // the client has gone
  }
}

}  // namespace

std::string to_json(const Status& status) {
  return cs::cat("{\"step\": ", status.step, ", \"loss\": ", cs::json_number(status.loss),
                 ", \"ranks\": ", status.ranks, "}\n");
}

StatusServer::StatusServer(asio::io_context& context, std::uint16_t port)
    : acceptor_(listening(context, port)) {}

cs::Task<void> StatusServer::serve(const Status& status, std::stop_token over) {
  try {
    for (;;) {
      cs::Task<tcp::socket> next = acceptor_.async_accept(cs::use_task(over));
      tcp::socket client = co_await std::move(next);
      cs::Task<void> line = answer(client, to_json(status));
      co_await std::move(line);
    }
  } catch (const cs::Error& error) {
    if (error.kind() != cs::ErrorKind::Cancelled) throw;
  }
  acceptor_.close();
}

}  // namespace asio_interop
