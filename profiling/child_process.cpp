#include "profiling/child_process.h"

#define BOOST_PROCESS_USE_STD_FS  // otherwise it needs Boost.Filesystem
#include <boost/process/args.hpp>
#include <boost/process/child.hpp>
#include <boost/process/error.hpp>
#include <boost/process/io.hpp>
#include <boost/process/search_path.hpp>
#include <iterator>

namespace coshard {

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  namespace process = boost::process;
  const std::string& name = command.front();
  const std::vector<std::string> arguments(command.begin() + 1, command.end());
  const bool has_path = name.find('/') != std::string::npos;
  const auto program = has_path ? process::filesystem::path(name) : process::search_path(name);
  if (program.empty()) return std::nullopt;
  std::error_code failed;
  process::ipstream out;
  process::child child(program, process::args(arguments), process::std_out > out,
                       process::std_err > process::null, failed);
  if (failed) return std::nullopt;
  const std::string text(std::istreambuf_iterator<char>(out), {});
  child.wait(failed);
  if (failed || child.exit_code() != 0) return std::nullopt;
  return text;
}

}  // namespace coshard
