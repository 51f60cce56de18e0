#pragma once
// Makes a program's two ranks disagree on one collective, and looks at whom the errors name.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include <coshard/dtensor/mesh/device_mesh.h>
#include "runtime/coro/user_call.h"
#include "tests/support/ends.h"

namespace coshard::user_lines {

// Of the files that a text names, all are of the tests.
inline void expect_no_library_file(const std::string& text) {
  static const std::regex place(R"(([\w.]+)\.(cpp|h):\d+)");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), place);
       it != std::sregex_iterator(); ++it)
    EXPECT_TRUE((*it)[1].str().find("_test") != std::string::npos ||
                it->str().starts_with("user_lines.h:"))
        << it->str() << " in: " << text;
}

// What a rank is told before the line that communicates.
struct Turn {
  Communicator* communicator;  // on rank 1, which calls a barrier first
  int* asked;
  void line(int number) const {
    *asked = number;
    if (communicator != nullptr) const Work barrier = communicator->issue(Collective());
  }
};
using Asks = Task<void> (*)(World& world, DeviceMesh mesh, Turn turn);

inline Task<void> disagree(World& world, Asks asks, int& line) {
  const DeviceMesh mesh = init_device_mesh(world, {2}, {"tp"});
  const Turn turn{world.rank() == 1 ? &mesh.communicator(0) : nullptr, &line};
  Task<void> asking = asks(world, mesh, turn);
  co_await std::move(asking);
}

// On both ranks the error names the line of rank 0; `file`: where `asks` stands.
inline void expect_both_lines(Asks asks, const char* file = __builtin_FILE()) {
  std::vector<int> lines(2);
  const std::vector<testing::End> ends =
      testing::ends_of(testing::quick_options(2), [&](World& world) {
        return disagree(world, asks, lines[static_cast<std::size_t>(world.rank())]);
      });
  const std::string path(file);
  const std::string name = path.substr(path.rfind('/') + 1);
  for (const testing::End& end : ends) {
    EXPECT_TRUE(end.is(ErrorKind::CommFailed)) << end;
    EXPECT_TRUE(end.names(str_cat(name, ":", lines[0]))) << "line " << lines[0] << ": " << end;
    expect_no_library_file(end.text);
  }
}

}  // namespace coshard::user_lines
