#include "runtime/control/failure_record.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <coshard/runtime/error.h>
#include "runtime/comm/collective.h"
#include "runtime/comm/peer_failure.h"

namespace coshard {
namespace {

constexpr std::size_t kFields = 7, kMostText = 4000, kMostField = 800;
constexpr char kEnd = '\0';  // of each field

std::atomic<bool> has_reported{false};

std::string field(std::string_view text, std::size_t most) {
  std::string cut(text.substr(0, most));
  for (char& letter : cut)
    if (letter == kEnd) letter = ' ';
  return cut + kEnd;
}

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::vector<int>> numbers_of(std::string_view text) {
  std::vector<int> all;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const auto number = number_of(text.substr(0, comma));
    if (!number) return std::nullopt;
    all.push_back(*number);
    text = comma == text.npos ? "" : text.substr(comma + 1);
  }
  return all;
}

void send_to_guard(std::string_view bytes) noexcept {
  const char* const name = std::getenv(kFailureVariable);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;  // an abstract name begins with a zero byte
  if (name == nullptr || std::strlen(name) + 1 > sizeof to.sun_path) return;
  std::memcpy(to.sun_path + 1, name, std::strlen(name));
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const timeval second{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
  (void)::sendto(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&to), size);
  ::close(fd);
}

}  // namespace

std::string FailureRecord::line() const {
  const std::string who = Failure{rank, text, module}.line();
  return place.empty() ? who : str_cat(who, " at ", place);
}

FailureRecord record_of(const Failure& failure, const std::exception_ptr& error) {
  FailureRecord record{"exception", failure.rank, failure.text, failure.module,
                       failure.where.line == 0 ? "" : location_of(failure.where)};
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    record.kind = to_string(known.kind());
    record.missing = known.missing();
    record.of_peer = dynamic_cast<const PeerFailure*>(&known) != nullptr;
  } catch (...) {
  }
  return record;
}

std::string to_bytes(const FailureRecord& record) {
  std::string missing;
  for (const int rank : record.missing)
    if (missing.size() < kMostField - 12)
      missing += (missing.empty() ? "" : ",") + std::to_string(rank);
  return field(record.kind, kMostField) + field(std::to_string(record.rank), kMostField) +
         field(record.text, kMostText) + field(record.module, kMostField) +
         field(record.place, kMostField) + field(missing, kMostField) +
         field(record.of_peer ? "1" : "0", 1);
}

std::optional<FailureRecord> record_of(std::string_view bytes) {
  std::array<std::string_view, kFields> fields;
  for (std::string_view& each : fields) {
    const std::size_t end = bytes.find(kEnd);
    if (end == bytes.npos) return std::nullopt;
    each = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
  }
  const auto rank = number_of(fields[1]);
  const auto missing = numbers_of(fields[5]);
  if (!bytes.empty() || !rank || !missing) return std::nullopt;
  return FailureRecord{
      std::string(fields[0]), *rank,    std::string(fields[2]), std::string(fields[3]),
      std::string(fields[4]), *missing, fields[6] == "1"};
}

void report_failure(const FailureRecord& record) noexcept {
  has_reported = true;
  try {
    send_to_guard(to_bytes(record));
  } catch (const std::bad_alloc&) {
    report_out_of_memory();
  }
}

void report_out_of_memory() noexcept {
  static constexpr char kRecord[] =  // the literal's own end is that of the last field
      "device failed\0"
      "-1\0"
      "no memory is left; raise ulimit -v, or run fewer ranks\0"
      "\0\0\0"
      "0";
  has_reported = true;
  send_to_guard({kRecord, sizeof kRecord});
}

void report_recovery() noexcept {
  if (has_reported.exchange(false)) send_to_guard("");
}

}  // namespace coshard
