#include <coshard/runtime/error.h>

#include <coshard/runtime/coro/rank_context.h>

namespace coshard {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::BadInput: return "bad input";
    case ErrorKind::Unsupported: return "unsupported";
    case ErrorKind::DeviceFailed: return "device failed";
    case ErrorKind::CommFailed: return "communication failed";
    case ErrorKind::Timeout: return "timeout";
    case ErrorKind::Cancelled: return "cancelled";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(message), kind_(kind), site_(RankContext::current().branch().place.site) {}

void Error::left(int rank, std::string_view path) {
  if (told_.empty())
    told_ = str_cat("rank ", rank, path.empty() ? "" : ", ", path, ": ", message());
}

void fail(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "unknown exception";
  }
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.message();
  } catch (...) {
    return text_of(error);
  }
}

void note_left(const std::exception_ptr& error, int rank, std::string_view path) {
  try {
    std::rethrow_exception(error);
  } catch (Error& known) {
    known.left(rank, path);
  } catch (...) {  // not an Error: has no record of where it left
  }
}

}  // namespace coshard
