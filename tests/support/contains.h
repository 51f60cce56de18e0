#pragma once
// That a text has a part.
#include <gtest/gtest.h>

#include <string>

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "'" << (text) << "' lacks '" << (part) << "'"
