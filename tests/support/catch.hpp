#pragma once

// Includes Catch2, version 2 (one header) or 3 (many); tests include it only through this file.
// Assertions of Catch2 2 are not thread-safe: collect failures per rank and assert on the main
// thread.

#if __has_include(<catch2/catch_test_macros.hpp>)

#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/catch_tostring.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>

#else

#include <catch2/catch.hpp>

#endif

#include <string>

namespace zero::test {

#if __has_include(<catch2/catch_test_macros.hpp>)
using Catch::Approx;
#else
using Catch::Detail::Approx;
#endif

/// @brief Returns a matcher for strings that contain `text`, as in `CHECK_THROWS_WITH(f(),
/// contains_text("rank 3"))`. Version 3 renamed Catch's own.
inline auto contains_text(std::string const& text) {
#if __has_include(<catch2/catch_test_macros.hpp>)
    return Catch::Matchers::ContainsSubstring(text);
#else
    return Catch::Matchers::Contains(text);
#endif
}

} // namespace zero::test
