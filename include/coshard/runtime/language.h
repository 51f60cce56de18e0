#pragma once
// What a program must be compiled with, said in one line where it is not. The headers that programs
// include have this one first.
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "coshard needs C++20 or later: compile with -std=c++20"
#elif !defined(__cpp_exceptions)
#error "coshard reports failures as exceptions: compile without -fno-exceptions"
#elif !defined(__cpp_rtti)
#error "coshard passes typed exceptions and attributes: compile without -fno-rtti"
#endif
