#pragma once
// Checks the language options that a program needs; the error is one line. Included first by every
// header that programs include.
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "coshard needs C++20 or later: compile with -std=c++20"
#elif !defined(__cpp_exceptions)
#error "coshard reports failures as exceptions: compile without -fno-exceptions"
#elif !defined(__cpp_rtti)
#error "coshard passes typed exceptions and attributes: compile without -fno-rtti"
#endif
