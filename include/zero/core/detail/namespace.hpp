#pragma once

/// @file
/// @brief Selects how the library is used: header-only, or compiled once as `zero::compiled`.
///
/// Define `ZERO_COMPILED` in translation units that link the compiled library; the CMake target
/// `zero::compiled` defines it. Headers then only declare functions that depend on no policy. The
/// two modes use different namespaces, so a program that mixes them does not link.
///
/// `ZERO_NAMESPACE` is the namespace of the library. `ZERO_INLINE` marks every function that is
/// defined in an `.ipp` file. `ZERO_COLD_INLINE` replaces it where no step calls the function,
/// which is then compiled for size.

#if defined(ZERO_COMPILED)
#define ZERO_NAMESPACE zero::inline compiled
#define ZERO_INLINE
#else
#define ZERO_NAMESPACE zero
#define ZERO_INLINE inline
#endif

#define ZERO_COLD_INLINE [[gnu::cold]] ZERO_INLINE
