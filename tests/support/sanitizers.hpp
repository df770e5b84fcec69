#pragma once

// The sanitizers that a test is compiled with. g++ defines a macro for each, clang++ before
// version 19 none.

#if defined(__has_feature)
#define ZERO_TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define ZERO_TEST_HAS_FEATURE(name) 0
#endif

namespace zero::test {

#if defined(__SANITIZE_ADDRESS__) || ZERO_TEST_HAS_FEATURE(address_sanitizer)
inline constexpr bool has_address_sanitizer = true;
#else
inline constexpr bool has_address_sanitizer = false;
#endif

#if defined(__SANITIZE_THREAD__) || ZERO_TEST_HAS_FEATURE(thread_sanitizer)
inline constexpr bool has_thread_sanitizer = true;
#else
inline constexpr bool has_thread_sanitizer = false;
#endif

} // namespace zero::test
