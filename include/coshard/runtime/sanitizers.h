#pragma once
// The sanitizer that the code is compiled for: COSHARD_ASAN and COSHARD_TSAN are 0 or 1, with both
// gcc and clang.

#if defined(__SANITIZE_ADDRESS__)
#define COSHARD_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define COSHARD_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COSHARD_ASAN 1
#elif __has_feature(thread_sanitizer)
#define COSHARD_TSAN 1
#endif
#endif

#ifndef COSHARD_ASAN
#define COSHARD_ASAN 0
#endif
#ifndef COSHARD_TSAN
#define COSHARD_TSAN 0
#endif
