#pragma once
// COSHARD_API: what a program may use of the shared library. Nothing else is exported, so that
// neither names nor inline functions of the inside meet a program's own.
#if defined(__GNUC__)
#define COSHARD_API [[gnu::visibility("default")]]
#else
#define COSHARD_API
#endif
