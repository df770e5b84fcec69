#pragma once

/// @file
/// @brief How the library is compiled: from its headers alone, or once as `zero::compiled`.
///
/// `ZERO_COMPILED` is defined by whoever links the compiled library (in CMake: by the target
/// `zero::compiled`). Headers then only declare what depends on no policy. The two modes live in
/// different namespaces, so units of both cannot be linked into one program by mistake.

#if defined(ZERO_COMPILED)
#define ZERO_NAMESPACE zero::inline compiled
#define ZERO_INLINE
#else
#define ZERO_NAMESPACE zero
#define ZERO_INLINE inline
#endif
