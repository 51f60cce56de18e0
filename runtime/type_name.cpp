#include <coshard/runtime/type_name.h>

#include <cxxabi.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace coshard {
namespace {

// The last "<length><name>" of a mangled name that cannot be demangled, such as that of a class
// local to a coroutine.
std::string last_name(std::string_view mangled) {
  std::string_view last = mangled;
  for (std::size_t at = 0; at < mangled.size();) {
    std::size_t length = 0;
    const char* const begin = mangled.data() + at;
    const auto [end, error] = std::from_chars(begin, mangled.data() + mangled.size(), length);
    const auto digits = static_cast<std::size_t>(end - begin);
    if (error != std::errc() || length == 0 || length > mangled.size() - at - digits) {
      ++at;
      continue;
    }
    last = mangled.substr(at + digits, length);
    at += digits + length;
  }
  return std::string(last);
}

}  // namespace

std::string type_name_of(const std::type_info& type) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : last_name(type.name());
  std::free(demangled);
  const std::size_t colon = name.substr(0, name.find('<')).rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace coshard
