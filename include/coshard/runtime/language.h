#pragma once
// Checks the options that a program needs, of the language and of Boost.Asio; the error is one
// line. Included first by every header that programs include.
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "coshard needs C++20 or later: compile with -std=c++20"
#elif !defined(__cpp_exceptions)
#error "coshard reports failures as exceptions: compile without -fno-exceptions"
#elif !defined(__cpp_rtti)
#error "coshard passes typed exceptions and attributes: compile without -fno-rtti"
#endif

// The library and the program share Asio's inline functions and its objects, whose layout, or the
// way in which threads meet in them, these macros change.
#if defined(BOOST_ASIO_DISABLE_THREADS)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_DISABLE_THREADS"
#elif defined(BOOST_ASIO_DISABLE_EPOLL)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_DISABLE_EPOLL"
#elif defined(BOOST_ASIO_DISABLE_EVENTFD)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_DISABLE_EVENTFD"
#elif defined(BOOST_ASIO_HAS_IO_URING)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_HAS_IO_URING"
#elif defined(BOOST_ASIO_DISABLE_THREAD_KEYWORD_EXTENSION)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_DISABLE_THREAD_KEYWORD_EXTENSION"
#elif defined(BOOST_ASIO_DISABLE_SMALL_BLOCK_RECYCLING)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_DISABLE_SMALL_BLOCK_RECYCLING"
#elif defined(BOOST_ASIO_DISABLE_STD_ATOMIC)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_DISABLE_STD_ATOMIC"
#elif defined(BOOST_ASIO_DISABLE_STD_EXCEPTION_PTR)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_DISABLE_STD_EXCEPTION_PTR"
#elif defined(BOOST_ASIO_NO_EXCEPTIONS)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_NO_EXCEPTIONS"
#elif defined(BOOST_ASIO_NO_TYPEID)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_NO_TYPEID"
#elif defined(BOOST_ASIO_ENABLE_BUFFER_DEBUGGING)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_ENABLE_BUFFER_DEBUGGING"
#elif defined(BOOST_ASIO_CUSTOM_HANDLER_TRACKING)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_CUSTOM_HANDLER_TRACKING"
#elif defined(BOOST_ASIO_ENABLE_HANDLER_TRACKING)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_ENABLE_HANDLER_TRACKING"
#elif defined(BOOST_ASIO_USE_TS_EXECUTOR_AS_DEFAULT)
#error "coshard shares Boost.Asio: compile without BOOST_ASIO_USE_TS_EXECUTOR_AS_DEFAULT"
#elif defined(BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE)
#if BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE != 2
#error "coshard shares Boost.Asio: leave BOOST_ASIO_RECYCLING_ALLOCATOR_CACHE_SIZE at 2"
#endif
#endif
