#pragma once
// The protocol between a guard and `coshard run` (guard_door.h). The guard sends messages and
// receives orders of one byte: a signal for its program, kLeave to exit, an acknowledgement of one
// message of output, or kInput, followed by two bytes of size (the lower first) and that much of the
// program's stdin; nothing: its end.
// Few pieces of each stream are unacknowledged, so that both ends can always read: neither signals
// nor the end of a program are queued behind them.
#include <array>
#include <cstdint>
#include <string>

namespace coshard::job {

// Where the guards find `coshard run`: "10.0.0.1:4242,10.1.0.1:4242", and their token.
constexpr const char* kAddressVariable = "COSHARD_RUN_ADDRESS";
constexpr const char* kTokenVariable = "COSHARD_RUN_TOKEN";

constexpr unsigned char kLeave = 0;
constexpr unsigned char kTakenOut = 128, kTakenErr = 129, kInput = 130;  // greater than any signal
// The most pieces of a stream that are sent without acknowledgement. Together they fit into a
// connection's initial buffer, also while the other end is stopped: a full one would time out.
constexpr int kMostAhead = 3;
constexpr std::size_t kLongestPiece = 8192;

enum class MessageKind : std::uint8_t {
  Hello,    // which rank it is
  Out,      // the program's stdout
  Err,      // and its stderr
  Fed,      // a piece of stdin has been written to the program
  Ended,    // how it ended, to_word(Ending)
  Drained,  // all of its output has been sent
};

constexpr std::uint32_t kLongestMessage = 1 << 16;

using MessageHeader = std::array<unsigned char, 5>;
MessageHeader header_of(MessageKind kind, std::size_t size);

struct MessageShape {
  MessageKind kind = MessageKind::Hello;
  std::uint32_t size = 0;
};
// Error{CommFailed}: not a header.
MessageShape shape_of(const MessageHeader& header);

}  // namespace coshard::job
