#pragma once
// What a call on meshes must refuse.
#include <gtest/gtest.h>

#include <string>

#include <coshard/runtime/error.h>

namespace coshard::testing {

// The message of the error that `call` must give.
template <class Call>
std::string mesh_refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace coshard::testing
