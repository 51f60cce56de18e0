#pragma once
// The way from a guard to the `coshard run` that it belongs to.
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <vector>

namespace coshard::job {

// Tries the addresses of the environment one after the other, until one knows the token. Blocks;
// Error{CommFailed}: none does.
boost::asio::ip::tcp::socket connect_to_run(boost::asio::io_context& io);

// Of this machine, without loopback unless there is nothing else.
std::vector<std::string> own_addresses();

}  // namespace coshard::job
