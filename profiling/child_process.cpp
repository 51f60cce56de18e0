#include "profiling/child_process.h"

#include <sys/mman.h>

#define BOOST_PROCESS_USE_STD_FS  // otherwise it needs Boost.Filesystem
#include <boost/process/args.hpp>
#include <boost/process/child.hpp>
#include <boost/process/error.hpp>
#include <boost/process/io.hpp>
#include <boost/process/search_path.hpp>
#include <cstdio>
#include <iterator>
#include <memory>

namespace coshard {
namespace {

struct Close {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// A file in memory, read from its beginning: unlike a pipe, it needs nobody who writes while the
// output is read, and raises no SIGPIPE if the program ends before it has read all.
File file_of(std::string_view bytes) {
  File file(::fdopen(::memfd_create("input", MFD_CLOEXEC), "w+"));
  if (file == nullptr) return nullptr;
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
  const bool at_begin = std::fseek(file.get(), 0, SEEK_SET) == 0;  // flushes
  return written && at_begin ? std::move(file) : nullptr;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::string_view input) {
  namespace process = boost::process;
  const std::string& name = command.front();
  const std::vector<std::string> arguments(command.begin() + 1, command.end());
  const bool has_path = name.find('/') != std::string::npos;
  const auto program = has_path ? process::filesystem::path(name) : process::search_path(name);
  if (program.empty()) return std::nullopt;
  const File in = file_of(input);
  if (in == nullptr) return std::nullopt;
  std::error_code failed;
  process::ipstream out;
  process::child child(program, process::args(arguments),
                       process::std_in<in.get(), process::std_out> out,
                       process::std_err > process::null, failed);
  if (failed) return std::nullopt;
  const std::string text(std::istreambuf_iterator<char>(out), {});
  child.wait(failed);
  if (failed || child.exit_code() != 0) return std::nullopt;
  return text;
}

}  // namespace coshard
