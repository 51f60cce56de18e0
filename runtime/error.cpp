#include <coshard/runtime/error.h>

#include <cxxabi.h>

#include <boost/system/system_error.hpp>

#include <coshard/runtime/coro/rank_context.h>
#include <coshard/runtime/type_name.h>

namespace coshard {
namespace {

// Of the exception that is being handled.
std::string type_text() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  return type == nullptr ? "an exception that is not of C++"
                         : "exception of type " + type_name_of(*type);
}

// "rank 0: …", as agree() throws what one rank failed with on all.
bool names_a_rank(std::string_view text) {
  if (!text.starts_with("rank ")) return false;
  text.remove_prefix(5);
  const std::size_t digits = text.find_first_not_of("0123456789");
  return digits > 0 && digits != text.npos && text.substr(digits).starts_with(": ");
}

}  // namespace

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
  if (!told_.empty()) return;
  told_ = path.empty() && names_a_rank(message())
              ? message()
              : str_cat("rank ", rank, path.empty() ? "" : ", ", path, ": ", message());
}

void fail(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const boost::system::system_error& known) {
    // Without the category and the place in Boost's sources, which what() ends with.
    const std::string all = known.what(), end = known.code().what();
    return (all.ends_with(end) ? all.substr(0, all.size() - end.size()) : all + ": ") +
           known.code().message();
  } catch (const std::exception& known) {
    return *known.what() != '\0' ? known.what() : type_text();
  } catch (const std::string& text) {
    return text;
  } catch (const char* text) {
    return text;
  } catch (...) {
    return type_text();
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
