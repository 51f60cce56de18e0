#pragma once
// What a guard and `coshard run` tell each other over their connection (guard_door.h). The guard
// sends messages; it is sent single bytes: a signal for its program, that it may leave, or that one
// message of output has been taken. Of each stream few messages are on their way, so that both ends
// can always read what comes: neither signals nor the end of a program wait behind output.
#include <array>
#include <cstdint>
#include <string>

namespace coshard::job {

// Where the guards find `coshard run`: "10.0.0.1:4242,10.1.0.1:4242", and what proves them its own.
constexpr const char* kAddressVariable = "COSHARD_RUN_ADDRESS";
constexpr const char* kTokenVariable = "COSHARD_RUN_TOKEN";

constexpr unsigned char kLeave = 0;
constexpr unsigned char kTakenOut = 128, kTakenErr = 129;  // greater than any signal
// The most that a guard sends before it is told so. What all of it holds fits into the buffer that a
// connection has at first, also while `coshard run` is stopped: one that is full is cut in time.
constexpr int kMostAhead = 3;
constexpr std::size_t kLongestOutput = 8192;

enum class MessageKind : std::uint8_t {
  Hello,    // who it is
  Out,      // what the program wrote to stdout
  Err,      // and to stderr
  Ended,    // how it ended, to_word(Ending)
  Drained,  // all that it wrote has been sent
};

constexpr std::uint32_t kLongestMessage = 1 << 16;

using MessageHeader = std::array<unsigned char, 5>;
MessageHeader header_of(MessageKind kind, std::size_t size);

struct MessageShape {
  MessageKind kind = MessageKind::Hello;
  std::uint32_t size = 0;
};
// Error{CommFailed}: it is no header.
MessageShape shape_of(const MessageHeader& header);

}  // namespace coshard::job
