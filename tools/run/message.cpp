#include "tools/run/message.h"

#include <coshard/runtime/error.h>

namespace coshard::job {

MessageHeader header_of(MessageKind kind, std::size_t size) {
  MessageHeader header{static_cast<unsigned char>(kind)};
  for (std::size_t i = 1; i < header.size(); ++i, size >>= 8)
    header[i] = static_cast<unsigned char>(size & 255);
  return header;
}

MessageShape shape_of(const MessageHeader& header) {
  MessageShape shape{static_cast<MessageKind>(header[0]), 0};
  for (std::size_t i = header.size(); --i > 0;) shape.size = shape.size << 8 | header[i];
  if (shape.kind > MessageKind::Drained || shape.size > kLongestMessage)
    fail(ErrorKind::CommFailed, "not a message of a guard");
  return shape;
}

}  // namespace coshard::job
