#pragma once
// Errors that tests throw, and read.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include <coshard/runtime/error.h>

namespace coshard::testing {

// Thrown by tests only.
struct Boom : std::runtime_error {
  explicit Boom(const std::string& what = "boom") : std::runtime_error(what) {}
};

// The text of the coshard error that `body` throws, "" for none; checks its kind.
template <class Body>
std::string error_text(ErrorKind kind, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace coshard::testing
